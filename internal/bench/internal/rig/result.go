package rig

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Conditions says where and when figures were measured; they mean nothing without it.
type Conditions struct {
	Date        time.Time
	Took        string
	Cores       int
	CPU, Memory string
	Kernel, Go  string
}

// ConditionsSince describes this machine, and a run that began then and ends now.
func ConditionsSince(began time.Time) Conditions {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return Conditions{
		Date:   began.UTC().Truncate(time.Second),
		Took:   time.Since(began).Round(time.Second).String(),
		Cores:  runtime.NumCPU(),
		CPU:    infoLine("/proc/cpuinfo", "model name"),
		Memory: infoLine("/proc/meminfo", "MemTotal"),
		Kernel: strings.TrimSpace(string(kernel)),
		Go:     runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// infoLine returns what the first "key: value" line of a file says of key.
func infoLine(path, key string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// Write leaves files in a folder, which it makes if need be: result.json, and
// the texts by their names.
func Write(dir string, result any, texts map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(result, "", "\t")
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(dir, "result.json"), append(b, '\n'), 0o644)}
	for name, text := range texts {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}
