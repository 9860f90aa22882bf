package bench

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

var profiles = flag.String("profiles", "", "folder for CPU profiles of server and agent while they move bytes (not openssh's)")

const (
	closeTimeout   = 3 * time.Second // for a role to end
	measureTimeout = 2 * time.Minute // for one measure of one row
)

// interrupted ends with the first interrupt: a benchmark then ends its processes, and
// removes their folder.
var interrupted context.Context

func TestMain(m *testing.M) {
	rig.Play(map[string]io.Closer{
		"target": &targetRole{},
		"agent":  &agentRole{},
		"server": &serverRole{},
		"client": &clientRole{},
		"link":   &linkRole{},
	}, closeTimeout)
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt)
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		stop()
		os.Exit(code)
	}))
}
