package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/rpc"
	"sync"

	"github.com/causewayproject/causeway/tunnel"
)

// storeName is the store's, among what a net/rpc server serves.
const storeName = "Store"

// storeHost shares one store between the replicas, as an API server does.
// A tunnel.DirStore would do, but with it the replicas were measured to hold
// about 10 KiB more for each idle agent.
type storeHost struct {
	tunnel.MemoryStore
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex // guards the field below
	conns map[net.Conn]bool
}

func hostStore() (*storeHost, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &storeHost{listener: l, conns: map[net.Conn]bool{}}
	s := rpc.NewServer()
	if err := s.RegisterName(storeName, &storeService{&h.MemoryStore}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	h.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns[conn] = true
			h.mu.Unlock()
			h.serving.Go(func() {
				s.ServeConn(conn)
				h.mu.Lock()
				defer h.mu.Unlock()
				delete(h.conns, conn)
			})
		}
	})
	return h, nil
}

func (h *storeHost) address() string { return h.listener.Addr().String() }

// Close ends the connections to it.
func (h *storeHost) Close() error {
	err := h.listener.Close()
	h.mu.Lock()
	for conn := range h.conns {
		conn.Close()
	}
	h.mu.Unlock()
	h.serving.Wait()
	return err
}

// StoreArgs and StoreReply serve all methods; net/rpc wants them exported.
type StoreArgs struct {
	Token   tunnel.Token
	ID, Key string
	Agent   tunnel.Identity
}

type StoreReply struct {
	Token   tunnel.Token
	Missing bool // fs.ErrNotExist, which would come as a text
	Revoked bool
}

type storeService struct{ store *tunnel.MemoryStore }

func (s *storeService) AddToken(a StoreArgs, _ *StoreReply) error {
	return s.store.AddToken(context.Background(), a.Token)
}

func (s *storeService) ClaimToken(a StoreArgs, r *StoreReply) (err error) {
	r.Token, err = s.store.ClaimToken(context.Background(), a.ID, a.Key)
	if r.Missing = errors.Is(err, fs.ErrNotExist); r.Missing {
		return nil
	}
	return err
}

func (s *storeService) Revoke(a StoreArgs, _ *StoreReply) error {
	return s.store.Revoke(context.Background(), a.Agent)
}

func (s *storeService) Revoked(a StoreArgs, r *StoreReply) (err error) {
	r.Revoked, err = s.store.Revoked(context.Background(), a.Agent)
	return err
}

// remoteStore is a replica's end of it.
type remoteStore struct{ client *rpc.Client }

var _ tunnel.Store = remoteStore{}

func dialStore(address string) (remoteStore, error) {
	c, err := rpc.Dial("tcp", address)
	return remoteStore{c}, err
}

func (s remoteStore) call(ctx context.Context, method string, a StoreArgs) (StoreReply, error) {
	c := s.client.Go(storeName+"."+method, a, new(StoreReply), make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
	case <-ctx.Done():
		return StoreReply{}, ctx.Err()
	}
	r := *c.Reply.(*StoreReply)
	if c.Error == nil && r.Missing {
		return r, fs.ErrNotExist
	}
	return r, c.Error
}

func (s remoteStore) AddToken(ctx context.Context, t tunnel.Token) error {
	_, err := s.call(ctx, "AddToken", StoreArgs{Token: t})
	return err
}

func (s remoteStore) ClaimToken(ctx context.Context, id, key string) (tunnel.Token, error) {
	r, err := s.call(ctx, "ClaimToken", StoreArgs{ID: id, Key: key})
	return r.Token, err
}

func (s remoteStore) Revoke(ctx context.Context, id tunnel.Identity) error {
	_, err := s.call(ctx, "Revoke", StoreArgs{Agent: id})
	return err
}

func (s remoteStore) Revoked(ctx context.Context, id tunnel.Identity) (bool, error) {
	r, err := s.call(ctx, "Revoked", StoreArgs{Agent: id})
	return r.Revoked, err
}
