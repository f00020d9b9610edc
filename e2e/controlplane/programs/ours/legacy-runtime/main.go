// Command legacy-runtime stands in for NVIDIA's container runtime in its mode `legacy`, which needs libnvidia-container.
//
// It is runc with one change: at `create`, it adds the driver's libraries to the bundle's config.json of a container whose
// NVIDIA_VISIBLE_DEVICES requests devices. Then it executes runc with the same arguments. The fake driver reads the same
// variable to choose the devices. Must never decide anything else.
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
	// rootVariable overrides the root of the node's driver.
	rootVariable = "NVIDIA_DRIVER_ROOT"
	driverRoot   = "/run/nvidia/driver"
)

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

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
		fmt.Fprintf(os.Stderr, "legacy-runtime: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if slices.Contains(arguments, "create") {
		if err := prepare(filepath.Join(bundle(arguments), "config.json")); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, arguments...), os.Environ())
}

// bundle returns the value of the option --bundle, or "" if it is not set.
func bundle(arguments []string) string {
	for index, argument := range arguments {
		name, value, isOne := strings.Cut(argument, "=")
		switch {
		case name != "--bundle" && name != "-b":
		case isOne:
			return value
		case index+1 < len(arguments):
			return arguments[index+1]
		}
	}
	return ""
}

// prepare adds the driver to the container described at path if its environment requests devices.
func prepare(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec members
	var process struct{ Env []string }
	if err := decode(path, content, &spec); err != nil {
		return err
	}
	if err := decode(path+": process", spec["process"], &process); err != nil {
		return err
	}
	if !asksForDevices(process.Env) {
		return nil
	}
	mounts, err := libraries(cmp.Or(os.Getenv(rootVariable), driverRoot))
	if err != nil {
		return err
	}
	if err := addMounts(path, spec, mounts); err != nil {
		return err
	}
	return replace(path, spec)
}

func decode(what string, content []byte, into any) error {
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
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

// libraries returns a read-only mount of every library of the driver at root, in a folder of the container's linker.
func libraries(root string) ([]mount, error) {
	folder := filepath.Join("/usr/lib", multiarch[runtime.GOARCH])
	found, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		return nil, err
	}
	var mounts []mount
	for _, library := range found {
		mounts = append(mounts, mount{
			filepath.Join(folder, library.Name()),
			"bind",
			filepath.Join(root, folder, library.Name()),
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
