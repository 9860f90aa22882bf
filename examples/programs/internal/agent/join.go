package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/tunnel"
)

// readJoin returns the invitation with the token of --join-token in it.
func (f *flags) readJoin() (tunnel.Invitation, error) {
	token, err := smallfile.Read(f.joinToken, 1)
	if err != nil {
		return tunnel.Invitation{}, fmt.Errorf("--join-token: %w", err)
	}
	trimmed := strings.TrimSpace(string(token))
	if trimmed == "" || strings.ContainsAny(trimmed, " \t\r\n") {
		return tunnel.Invitation{}, errors.New("--join-token: the file has no token")
	}
	text := environmentLines()
	if f.invitation != "" {
		invitation, err := smallfile.Read(f.invitation, 1)
		if err != nil {
			return tunnel.Invitation{}, fmt.Errorf("--invitation: %w", err)
		}
		text = string(invitation)
	}
	variables, _ := readVariables(text) // ParseInvitation reads it again, and tells what is wrong
	if variables["CAUSEWAY_TOKEN"] != "" {
		return tunnel.Invitation{}, errors.New("there are two tokens, --join-token and the invitation's CAUSEWAY_TOKEN: remove one")
	}
	return tunnel.ParseInvitation(text + "\nCAUSEWAY_TOKEN=" + trimmed)
}
