package connect

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Source is where a kubeconfig comes from, and changes. See
// Options.Source, [SecretSource] and [FileSource].
type Source interface {
	// Read returns the kubeconfig as it is now.
	Read(ctx context.Context) (*clientcmdapi.Config, error)
	// Watch calls use with the kubeconfig, and again after each change, until
	// ctx ends, and returns then. An error says that the kubeconfig is
	// missing or can't be read. Further calls follow it, and the last good
	// kubeconfig stays in use. The calls of use come one after the other. It may be called
	// with the same kubeconfig again, and only reads it.
	Watch(ctx context.Context, use func(*clientcmdapi.Config, error))
}

// fileInterval is how often a file is looked at.
const fileInterval = time.Second

// FileSource is the kubeconfig in a file. Relative paths in it are taken from
// the file's directory, as clientcmd takes them.
//
// The file is read once a second, and so are the files of certificates and keys
// that it names: what counts is what they hold, whether they are written in
// place, replaced by a rename, or reached by a symbolic link that is swapped, as
// the kubelet mounts Secrets. A change is taken up when it has been the same for
// a second, so that a file that is being written is not: after one to two
// seconds. A file that stays unreadable, or is cut short, is an error.
//
// It is one file: the list of files that KUBECONFIG may hold is not read.
func FileSource(path string) Source { return fileSource(path) }

type fileSource string

var _ Source = fileSource("")

// Read reads the file.
func (f fileSource) Read(context.Context) (*clientcmdapi.Config, error) {
	config, _, err := f.read()
	return config, err
}

// Watch reads the file until ctx ends.
func (f fileSource) Watch(ctx context.Context, use func(*clientcmdapi.Config, error)) {
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	var used fileState
	_, last, _ := f.read()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		config, now, err := f.read()
		if now == last && now != used {
			use(config, err)
			used = now
		}
		last = now
	}
}

// fileState is a hash of all that was read.
type fileState [sha256.Size]byte

func (f fileSource) read() (*clientcmdapi.Config, fileState, error) {
	h := sha256.New()
	config, err := f.load(h)
	if err != nil {
		err = fmt.Errorf("connect: file %s: %w", string(f), err)
		hashRead(h, nil, err)
	}
	return config, fileState(h.Sum(nil)), err
}

func (f fileSource) load(h hash.Hash) (*clientcmdapi.Config, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	hashRead(h, data, nil)
	config, err := entry.Load(data)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = string(f)
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = string(f)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, err
	}
	for _, path := range namedFiles(config) {
		data, err := route.ReadFile(path)
		hashRead(h, data, err) // whether it is needed is found out elsewhere
	}
	return config, nil
}

// hashRead makes what was read, or not, part of a state.
func hashRead(h hash.Hash, data []byte, err error) {
	fmt.Fprintf(h, "%d %v\n", len(data), err)
	h.Write(data)
}

// namedFiles are the files of certificates and keys of the current context: of
// those a Client reads once. A token's it reads again by itself.
func namedFiles(config *clientcmdapi.Config) []string {
	current, err := entry.FollowContext(config)
	if err != nil {
		return nil
	}
	files := route.NamedFiles(current)
	delete(files, route.TokenFile)
	return slices.Sorted(maps.Values(files))
}
