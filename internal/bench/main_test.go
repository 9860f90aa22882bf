package bench

import (
	"flag"
	"io"
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

func TestMain(m *testing.M) {
	rig.Play(map[string]io.Closer{
		"target": &targetRole{},
		"agent":  &agentRole{},
		"server": &serverRole{},
		"client": &clientRole{},
		"link":   &linkRole{},
	}, closeTimeout)
	goleak.VerifyTestMain(m)
}
