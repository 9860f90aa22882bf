package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/causewayproject/causeway/tunnel"
)

// maxFile is more than a token, or an invitation without one, can have.
const maxFile = 64 << 10

// readJoin returns the invitation with the token of --join-token in it.
func (f *flags) readJoin() (tunnel.Invitation, error) {
	token, err := readSmallFile(f.joinToken)
	if err != nil {
		return tunnel.Invitation{}, fmt.Errorf("--join-token: %w", err)
	}
	if token = strings.TrimSpace(token); token == "" || strings.ContainsAny(token, " \t\r\n") {
		return tunnel.Invitation{}, errors.New("--join-token: the file has no token")
	}
	text := environmentLines()
	if f.invitation != "" {
		if text, err = readSmallFile(f.invitation); err != nil {
			return tunnel.Invitation{}, fmt.Errorf("--invitation: %w", err)
		}
	}
	if hasToken(text) {
		return tunnel.Invitation{}, errors.New("there are two tokens, --join-token and the invitation's CAUSEWAY_TOKEN: remove one")
	}
	return tunnel.ParseInvitation(text + "\nCAUSEWAY_TOKEN=" + token)
}

// hasToken reports whether an invitation has a token of its own.
func hasToken(text string) bool {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if name == "CAUSEWAY_TOKEN" && unquote(value) != "" {
			return true
		}
	}
	return false
}

func readSmallFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return string(text), err
}
