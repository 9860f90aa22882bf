package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
)

// TestKilled: what a relay had under way when its process was killed doesn't look
// complete, on either side.
func TestKilled(t *testing.T) {
	if os.Getenv("CAUSEWAY_RELAY_CHILD") != "" {
		relayUntilKilled(t)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "CAUSEWAY_RELAY_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i := range ends {
		if ends[i], err = net.Dial("tcp", strings.TrimSpace(address)); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
		ends[i].SetDeadline(time.Now().Add(20 * time.Second))
	}
	for i, conn := range ends {
		io.WriteString(conn, "x")
		if _, err := io.ReadFull(ends[1-i], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	child.Process.Kill()
	for i, conn := range ends {
		if _, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("side %d: got %v, want a reset", i, err)
		}
	}
}

// relayUntilKilled relays between the first two that connect.
func relayUntilKilled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(l.Addr())
	var ends [2]net.Conn
	for i := range ends {
		if ends[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	relay.Relay(t.Context(), ends[0], ends[1])
	t.Fatal("the relay has ended")
}
