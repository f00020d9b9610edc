// Command nvidia-container-runtime stands in for NVIDIA's container runtime on a node whose driver is the fake one.
//
// As the real one in its legacy mode, it is runc with one change: at `create`, the bundle's config.json of a container
// whose NVIDIA_VISIBLE_DEVICES asks for devices gets the driver, then runc takes over with the same arguments. Which
// devices those are is left to the driver, which reads the same variable. Must never decide anything else.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	// configurationVariable names another configuration than the node's.
	configurationVariable = "NVIDIA_CONTAINER_RUNTIME_CONFIG"
	configurationPath     = "/run/nvidia/container-runtime.json"
	hardwarePlace         = "/run/nvidia/hardware"
)

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// configuration says where the node keeps its driver; both are folders of the node.
type configuration struct {
	// Libraries holds what a container's linker is to find.
	Libraries string `json:"libraries"`
	// Hardware is the driver's FAKE_DRIVER_DIR.
	Hardware string `json:"hardware"`
}

// members are a JSON object's, each kept as it was written so that nothing is lost that is not understood here.
type members map[string]json.RawMessage

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "nvidia-container-runtime: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if bundle, ok := bundleToCreate(arguments); ok {
		configured := os.Getenv(configurationVariable)
		if configured == "" {
			configured = configurationPath
		}
		if err := prepare(filepath.Join(bundle, "config.json"), configured); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, arguments...), os.Environ())
}

// bundleToCreate returns the bundle if the arguments are those of `create`; its default is the working directory.
func bundleToCreate(arguments []string) (bundle string, ok bool) {
	bundle = "."
	for index, argument := range arguments {
		name, value, isOne := strings.Cut(argument, "=")
		switch {
		case argument == "create":
			ok = true
		case name != "--bundle" && name != "-b":
		case isOne:
			bundle = value
		case index+1 < len(arguments):
			bundle = arguments[index+1]
		}
	}
	return bundle, ok
}

// prepare adds the driver to the container described at path if its environment asks for devices.
func prepare(path, configured string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec, process members
	var environment []string
	if err := decode(path, content, &spec); err != nil {
		return err
	}
	if err := decode(path+": process", spec["process"], &process); err != nil {
		return err
	}
	if process["env"] != nil {
		if err := decode(path+": process.env", process["env"], &environment); err != nil {
			return err
		}
	}
	if !asksForDevices(environment) {
		return nil
	}
	driver, err := readConfiguration(configured)
	if err != nil {
		return err
	}
	mounts, err := driver.mounts()
	if err != nil {
		return err
	}
	if err := add(spec, process, append(environment, "FAKE_DRIVER_DIR="+hardwarePlace), mounts); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replace(path, spec)
}

func decode(what string, content []byte, into any) error {
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// asksForDevices follows NVIDIA's rule: unset, empty, "void" and "none" want no device. The last setting counts.
func asksForDevices(environment []string) bool {
	wanted := ""
	for _, setting := range environment {
		if value, ok := strings.CutPrefix(setting, "NVIDIA_VISIBLE_DEVICES="); ok {
			wanted = value
		}
	}
	return wanted != "" && wanted != "void" && wanted != "none"
}

func readConfiguration(path string) (driver configuration, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = decode(path, content, &driver)
	}
	return driver, err
}

// mounts returns every library read-only at a place where the container's linker looks, and the hardware.
func (driver configuration) mounts() ([]mount, error) {
	libraries, err := os.ReadDir(driver.Libraries)
	if err != nil {
		return nil, err
	}
	mounts := []mount{{hardwarePlace, "bind", driver.Hardware, []string{"rbind", "rprivate", "rw"}}}
	for _, library := range libraries {
		mounts = append(mounts, mount{
			filepath.Join("/usr/lib", multiarch[runtime.GOARCH], library.Name()),
			"bind",
			filepath.Join(driver.Libraries, library.Name()),
			[]string{"rbind", "rprivate", "ro", "nosuid", "nodev"},
		})
	}
	return mounts, nil
}

// add puts environment and further mounts into spec, whose process is given.
func add(spec, process members, environment []string, further []mount) error {
	var mounts []json.RawMessage
	if spec["mounts"] != nil {
		if err := decode("mounts", spec["mounts"], &mounts); err != nil {
			return err
		}
	}
	for _, one := range further {
		mounts = append(mounts, encode(one))
	}
	process["env"] = encode(environment)
	spec["process"] = encode(process)
	spec["mounts"] = encode(mounts)
	return nil
}

// encode writes what came from JSON, or is made of strings, so it cannot fail.
func encode(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return text.Bytes()
}

// replace writes spec in one step, with the permissions the file had.
func replace(path string, spec members) error {
	found, err := os.Stat(path)
	if err != nil {
		return err
	}
	draft := path + ".new"
	if err := os.WriteFile(draft, encode(spec), found.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(draft, path)
}
