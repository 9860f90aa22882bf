package scale

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/rpc"
	"time"

	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// storeHost shares one store between the replicas, as an API server does.
// A tunnel.DirStore would do, but with it the replicas were measured to hold
// about 10 KiB more for each idle agent.
type storeHost struct {
	tunnel.MemoryStore
	*proxytest.Server
}

func hostStore() (*storeHost, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &storeHost{}
	s := rpc.NewServer()
	if err := s.RegisterName("Store", &storeService{&h.MemoryStore}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	h.Server = proxytest.Serve(l, func(_ context.Context, conn net.Conn) { s.ServeConn(conn) })
	return h, nil
}

type storeService struct{ store *tunnel.MemoryStore }

type Claim struct{ ID, Key string }

type Claimed struct {
	Token   tunnel.Token
	Missing bool // fs.ErrNotExist, which would come as a text
}

func (s *storeService) ClaimToken(c Claim, r *Claimed) (err error) {
	r.Token, err = s.store.ClaimToken(context.Background(), c.ID, c.Key)
	if r.Missing = errors.Is(err, fs.ErrNotExist); r.Missing {
		return nil
	}
	return err
}

func (s *storeService) Revoked(agent tunnel.Identity, revoked *time.Time) (err error) {
	*revoked, err = s.store.Revoked(context.Background(), agent)
	return err
}

// remoteStore is a replica's end of it. Replicas neither invite nor revoke here.
type remoteStore struct {
	tunnel.Store
	client *rpc.Client
}

func dialStore(address string) (remoteStore, error) {
	c, err := rpc.Dial("tcp", address)
	return remoteStore{client: c}, err
}

func (s remoteStore) call(ctx context.Context, method string, args, reply any) error {
	c := s.client.Go(method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
		return c.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s remoteStore) ClaimToken(ctx context.Context, id, key string) (tunnel.Token, error) {
	r := new(Claimed)
	err := s.call(ctx, "Store.ClaimToken", Claim{id, key}, r)
	if err == nil && r.Missing {
		err = fs.ErrNotExist
	}
	if err != nil {
		return tunnel.Token{}, err
	}
	return r.Token, nil
}

func (s remoteStore) Revoked(ctx context.Context, id tunnel.Identity) (time.Time, error) {
	revoked := new(time.Time)
	if err := s.call(ctx, "Store.Revoked", id, revoked); err != nil {
		return time.Time{}, err
	}
	return *revoked, nil
}
