package cli

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupLimits say how many bytes a container may use, by version 2 and 1 of cgroups.
var cgroupLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// MemoryShare returns a quarter of the bytes that this process may use: those of GOMEMLIMIT,
// or of its container, nine tenths of which become Go's limit. It is 0 if there is no limit.
func MemoryShare() int64 {
	limit := debug.SetMemoryLimit(-1)
	for _, file := range cgroupLimits {
		text, _ := os.ReadFile(file)
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n < 1<<50 && limit == math.MaxInt64 { // version 1 has no "max"
			debug.SetMemoryLimit(n / 10 * 9)
			limit = n
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit / 4
}
