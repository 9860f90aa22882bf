package oidc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

var errBroken = errors.New("the store is broken")

// brokenStore fails. If t is not nil, it must not be called at all.
type brokenStore struct {
	tunnel.Store
	t *testing.T
}

func (s brokenStore) Create(context.Context, tunnel.Record) error {
	if s.t != nil {
		s.t.Error("the Store was called")
	}
	return errBroken
}
