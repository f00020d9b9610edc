// Command kubernetes is every part of a control plane and a node in one binary.
//
// The first argument, or the name it was started by, says which part to be. One binary links in the time of one, and
// its pages are shared by all the processes of a cluster.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// parts are the commands by name.
var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 newKubelet,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

// newKubelet gives the command a plain context where it takes one, as it does since 1.34: it sets its own signals up.
func newKubelet() *cobra.Command {
	switch command := any(kubelet.NewKubeletCommand).(type) {
	case func() *cobra.Command:
		return command()
	case func(context.Context) *cobra.Command:
		return command(context.Background())
	default:
		panic(fmt.Sprintf("kubelet.NewKubeletCommand is a %T", command))
	}
}

func main() {
	part, arguments := filepath.Base(os.Args[0]), os.Args[1:]
	if parts[part] == nil && part != "etcd" && len(arguments) > 0 {
		part, arguments = arguments[0], arguments[1:]
	}
	os.Args = append([]string{part}, arguments...)
	if part == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := parts[part]
	if command == nil {
		names := append(slices.Sorted(maps.Keys(parts)), "etcd")
		fmt.Fprintf(os.Stderr, "%q is no part: one of %s\n", part, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
