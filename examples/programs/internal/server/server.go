// Package server is the tunnel's end beside the controllers, and the commands that work
// on its state.
package server

import "github.com/spf13/cobra"

// Commands returns the server, and what works on its state.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		serverCommand(), enrollCommand(), joinCommand(), revokeCommand(), payloadCommand(), ticketCommand(), kubeconfigCommand(), rotateCommand(),
	}
}
