package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/causewayproject/causeway/tunnel/gateway"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// tokenReview returns what knows clients by tokens of a cluster; nil if no
// client is to show any.
func (f *doorFlags) tokenReview(state *stateFlags) (*tunnelkube.TokenReview, error) {
	if len(f.audiences) == 0 {
		return nil, nil
	}
	// A client of its own: strangers who show wrong tokens take none of the
	// requests that the state is allowed.
	client, err := state.client()
	if err != nil {
		return nil, fmt.Errorf("tunnel-server: -door-token-audience: -kubeconfig: %w", err)
	}
	return &tunnelkube.TokenReview{Client: client, Audiences: f.audiences}, nil
}

// ticketOrToken asks the API server about what is not a valid ticket.
func (p *program) ticketOrToken(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
	id, err := p.tickets.Authenticate(ctx, c)
	if p.review == nil || !errors.Is(err, gateway.ErrCredentials) {
		return id, err
	}
	return p.review.Authenticate(ctx, c)
}
