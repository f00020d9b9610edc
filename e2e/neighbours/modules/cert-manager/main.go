// Runs controllers of cert-manager beside a cluster: those that issue from self-signed and CA Issuers, and the injector of
// CA bundles into webhooks.
//
// cert-manager's own programs are modules that no proxy has. Their controllers are packages of its main module, so this
// starts the same ones. Must never decide anything itself.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsself "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var controllers = []string{
	approver.ControllerName, requestsca.CRControllerName, requestsself.CRControllerName, issuing.ControllerName,
	keymanager.ControllerName, readiness.ControllerName, requestmanager.ControllerName, revisionmanager.ControllerName,
	trigger.ControllerName, issuers.ControllerName,
}

func main() {
	kubeconfig := flag.String("config", "", "path of the kubeconfig")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   100,
		KubernetesAPIBurst: 200,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Minute,
			CertificateRequestMaximumBackoffDuration: time.Hour,
		},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build("controller")
	if err != nil {
		return err
	}
	injector, err := newInjector(ctx, shared)
	if err != nil {
		return err
	}
	failed := make(chan error, len(controllers)+1)
	for _, name := range controllers {
		one, err := controller.Known()[name](factory)
		if err != nil {
			return err
		}
		go func() { failed <- one.Run(1, ctx) }()
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	go func() { failed <- injector.Start(ctx) }()
	return <-failed
}

func newInjector(ctx context.Context, shared *controller.Context) (ctrl.Manager, error) {
	if err := cmapi.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	options := ctrl.Options{Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}}
	manager, err := ctrl.NewManager(shared.RESTConfig, options)
	if err != nil {
		return nil, err
	}
	return manager, cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor:        map[string]bool{cainjector.MutatingWebhookConfigurationName: true},
	})
}
