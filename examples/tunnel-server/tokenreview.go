package main

import (
	"context"
	"fmt"

	"github.com/causewayproject/causeway/tunnel/gateway"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// authenticator says who a client of a door is.
type authenticator func(context.Context, gateway.Credentials) (gateway.Identity, error)

// byToken returns what knows clients by tokens of a cluster; nil if no client is
// to show any.
func (f *doorFlags) byToken(state *stateFlags) (authenticator, error) {
	if len(f.audiences) == 0 {
		return nil, nil
	}
	// A client of its own: strangers who show wrong tokens take none of the
	// requests that the state is allowed.
	client, err := state.client()
	if err != nil {
		return nil, fmt.Errorf("tunnel-server: -door-token-audience: -kubeconfig: %w", err)
	}
	review := &tunnelkube.TokenReview{Client: client, Audiences: f.audiences, Opaque: f.opaque}
	return review.Authenticate, nil
}

// byCertificate knows a client by the certificate that it shows.
func byCertificate(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if len(c.Certificates) == 0 {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	name := c.Certificates[0].Subject.CommonName
	return gateway.Identity{Name: name, Cluster: name}, nil
}
