package socket_test

import (
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

func TestUnsentLimitFollowsTheRate(t *testing.T) {
	const KiB, MiB = 1 << 10, 1 << 20
	for _, tt := range []struct {
		sent int
		took time.Duration
		want int
	}{
		{128 * KiB, 20 * time.Second, 16 * KiB}, // 50 kbit/s: a dial waits for no more than that
		{4 * MiB, 3 * time.Second, 16 * KiB},    // 10 Mbit/s
		{4 * MiB, 320 * time.Millisecond, 128 * KiB},
		{4 * MiB, 160 * time.Millisecond, 256 * KiB},
		{4 * MiB, 161 * time.Millisecond, 128 * KiB},
		{4 * MiB, 4 * time.Millisecond, 4 * MiB},
		{4 * MiB, 40 * time.Millisecond, MiB},
		{4 * MiB, 1000 * time.Hour, 16 * KiB},
		{4 * MiB, 0, 4 * MiB},
	} {
		if got := socket.UnsentLimitFor(tt.sent, tt.took); got != tt.want {
			t.Errorf("%d bytes in %v: got %d, want %d", tt.sent, tt.took, got, tt.want)
		}
	}
}
