package scale

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/rpc"

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

type Found struct {
	Record  tunnel.Record
	Missing bool // fs.ErrNotExist, which would come as a text
}

func (s *storeService) Get(r tunnel.Record, found *Found) (err error) {
	found.Record, err = s.store.Get(context.Background(), r.Kind, r.Name)
	if found.Missing = errors.Is(err, fs.ErrNotExist); found.Missing {
		return nil
	}
	return err
}

func (s *storeService) Replace(r tunnel.Record, conflict *bool) error {
	err := s.store.Replace(context.Background(), r)
	if *conflict = errors.Is(err, tunnel.ErrConflict); *conflict {
		return nil
	}
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

func (s remoteStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	found := new(Found)
	err := s.call(ctx, "Store.Get", tunnel.Record{Kind: kind, Name: name}, found)
	if err == nil && found.Missing {
		err = fs.ErrNotExist
	}
	if err != nil {
		return tunnel.Record{}, err
	}
	return found.Record, nil
}

func (s remoteStore) Replace(ctx context.Context, r tunnel.Record) error {
	conflict := new(bool)
	err := s.call(ctx, "Store.Replace", r, conflict)
	if err == nil && *conflict {
		err = tunnel.ErrConflict
	}
	return err
}
