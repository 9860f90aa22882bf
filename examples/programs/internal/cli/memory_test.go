package cli_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
)

func TestMemoryShare(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer func(files []string) { *cli.CgroupLimits = files; debug.SetMemoryLimit(before) }(*cli.CgroupLimits)
	file := filepath.Join(t.TempDir(), "memory.max")
	*cli.CgroupLimits = []string{"/nonexistent", file}
	for _, tt := range []struct {
		name, text           string
		goLimit, want, after int64
	}{
		{"none", "max\n", math.MaxInt64, 0, math.MaxInt64},
		{"none, version 1", "9223372036854771712\n", math.MaxInt64, 0, math.MaxInt64},
		{"the container's", "1073741820\n", math.MaxInt64, 268435455, 966367638},
		{"GOMEMLIMIT", "1073741820\n", 800 << 20, 200 << 20, 800 << 20},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		debug.SetMemoryLimit(tt.goLimit)
		if got, after := cli.MemoryShare(), debug.SetMemoryLimit(-1); got != tt.want || after != tt.after {
			t.Errorf("%s: got %d and Go's limit %d, want %d and %d", tt.name, got, after, tt.want, tt.after)
		}
	}
}
