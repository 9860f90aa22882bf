package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// conditions is what a figure is worth nothing without.
type conditions struct {
	Date    time.Time
	Took    string
	Cores   int
	CPU     string
	Memory  string
	Kernel  string
	Go      string
	OpenSSH string `json:",omitempty"`
	Runs    int
	Sizes   sizes
}

func (p *plan) conditions(began time.Time) conditions {
	c := conditions{
		Date:   began.UTC().Truncate(time.Second),
		Took:   time.Since(began).Round(time.Second).String(),
		Cores:  runtime.NumCPU(),
		Go:     runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Runs:   p.runs,
		Sizes:  p.sizes,
		CPU:    infoLine("/proc/cpuinfo", "model name"),
		Memory: infoLine("/proc/meminfo", "MemTotal"),
	}
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		c.Kernel = cString(u.Release[:])
	}
	for _, r := range p.rows {
		if r.name == opensshRow.name {
			c.OpenSSH = sshVersion()
		}
	}
	return c
}

func cString(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
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

// write leaves the three files in a folder, which it makes if need be.
func (r *result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	var errs []error
	for name, content := range map[string]string{
		"result.json": string(b) + "\n",
		"table.txt":   r.table(),
		"chart.svg":   r.chart(),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return errors.Join(errs...)
}
