// Command nvidia-container-runtime stands in for NVIDIA's container runtime on a node whose driver is the fake one.
//
// Like the real one in its legacy mode, it is runc with one change: at `create`, it adds the driver to the bundle's
// config.json of a container whose NVIDIA_VISIBLE_DEVICES requests devices. Then it executes runc with the same
// arguments. The driver reads the same variable to choose the devices. Another variable names the fake driver's hardware,
// so `exec` adds that to its process too. Must never decide anything else.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

const (
	// configurationVariable overrides the path of the node's configuration.
	configurationVariable = "NVIDIA_CONTAINER_RUNTIME_CONFIG"
	configurationPath     = "/run/nvidia/container-runtime.json"
	hardwarePlace         = "/run/nvidia/hardware"
)

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// configuration has the folders of the node's driver.
type configuration struct {
	// Libraries is the folder of the driver's libraries.
	Libraries string `json:"libraries"`
	// Hardware is the driver's FAKE_DRIVER_DIR.
	Hardware string `json:"hardware"`
}

// members are the members of a JSON object. Each is kept as it was written, so that unknown members are not changed.
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
	if err := change(arguments); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, arguments...), os.Environ())
}

// change changes the files that runc will read, if the command is `create` or `exec`.
func change(arguments []string) error {
	switch {
	case slices.Contains(arguments, "create"):
		configured := cmp.Or(os.Getenv(configurationVariable), configurationPath)
		return prepare(filepath.Join(option(arguments, "--bundle", "-b"), "config.json"), configured)
	case slices.Contains(arguments, "exec"):
		if path := option(arguments, "--process", "-p"); path != "" {
			return follow(path)
		}
	}
	return nil
}

// option returns the value of an option, which has two names, or "" if it is not set.
func option(arguments []string, long, short string) string {
	for index, argument := range arguments {
		name, value, isOne := strings.Cut(argument, "=")
		switch {
		case name != long && name != short:
		case isOne:
			return value
		case index+1 < len(arguments):
			return arguments[index+1]
		}
	}
	return ""
}

// prepare adds the driver to the container described at path if its environment requests devices.
func prepare(path, configured string) error {
	spec, err := read(path)
	if err != nil {
		return err
	}
	var process members
	if err := decode(path+": process", spec["process"], &process); err != nil {
		return err
	}
	if asks, err := addVariable(path, process); err != nil || !asks {
		return err
	}
	driver, err := readConfiguration(configured)
	if err != nil {
		return err
	}
	mounts, err := driver.mounts()
	if err != nil {
		return err
	}
	spec["process"] = encode(process)
	if err := addMounts(path, spec, mounts); err != nil {
		return err
	}
	return replace(path, spec)
}

// follow adds the hardware's variable to the process described at path, if its container has the driver.
func follow(path string) error {
	process, err := read(path)
	if err != nil {
		return err
	}
	if asks, err := addVariable(path, process); err != nil || !asks {
		return err
	}
	return replace(path, process)
}

func read(path string) (found members, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = decode(path, content, &found)
	}
	return found, err
}

func decode(what string, content []byte, into any) error {
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// addVariable adds the fake driver's variable to the environment if that requests devices.
func addVariable(path string, process members) (asks bool, err error) {
	var environment []string
	if process["env"] != nil {
		if err := decode(path+": env", process["env"], &environment); err != nil {
			return false, err
		}
	}
	if !asksForDevices(environment) {
		return false, nil
	}
	process["env"] = encode(append(environment, "FAKE_DRIVER_DIR="+hardwarePlace))
	return true, nil
}

// asksForDevices follows NVIDIA's rule: unset, empty, "void" and "none" request no device. The last value counts.
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

// mounts returns a read-only mount of every library in a folder of the container's linker, and one of the hardware.
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

func addMounts(path string, spec members, further []mount) error {
	var mounts []json.RawMessage
	if spec["mounts"] != nil {
		if err := decode(path+": mounts", spec["mounts"], &mounts); err != nil {
			return err
		}
	}
	for _, one := range further {
		mounts = append(mounts, encode(one))
	}
	spec["mounts"] = encode(mounts)
	return nil
}

// encode returns JSON. It cannot fail, because all values came from JSON or are made of strings.
func encode(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return text.Bytes()
}

// replace writes spec atomically, with the permissions of the old file.
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
