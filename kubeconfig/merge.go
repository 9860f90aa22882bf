package kubeconfig

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Merge returns the kubeconfig existing, YAML or JSON, with s in it. It returns
// existing itself where nothing changes in meaning, so that bytes.Equal tells
// whether there is something to write; else YAML. Neither is written to. An
// error wraps a [*FieldError] and holds no secret.
//
// The cluster and the user entry are found by the current context, whatever
// their names are, and keep them. Everything else stays: other contexts, clusters and users, preferences,
// extensions of others, unknown keys wherever they are, the digits of numbers,
// the order of keys, and as a rule comments. YAML aliases and merge keys are written out,
// and of a key that is there twice the last one stays, all as client-go reads them: the text is
// then written anew, without comments. A text with
// several documents is an error: client-go would read the first only. So is one that is
// larger than a Secret can be, or has more than 1,000 items in a list.
// The result says what client-go would read; a field of a plugin (exec,
// auth-provider) goes with the plugin.
//
// A zero field of s leaves the kubeconfig as it is. A set one has to be as Build
// wants it:
//   - Name is not looked at.
//   - Endpoint is server, which keeps its path if host and port are the same.
//   - MoreEndpoints, if nil, leaves the present ones; if empty, removes them.
//   - CA replaces certificate-authority and insecure-skip-tls-verify, too. The
//     same certificates in another order are the same.
//   - TLSServerName is tls-server-name.
//   - Credentials replace every other way to authenticate: client-certificate,
//     client-key (-data too), token, tokenFile, username, password, exec and
//     auth-provider. Impersonation (as, as-uid, as-groups, as-user-extra) stays,
//     without which the user could do more than before; only AuthInfo, a user
//     entry given whole, replaces it, too. With CAKey, an administrator's
//     certificate that CA has issued is kept until half of its life is over, of which
//     more than a year counts as one (as Cluster API has it), or for as long as it is
//     valid if the CA ends before a new one would. A nil CA then means the present one.
//   - Route is taken whole: what it leaves open (NoProxy, Header, ProxyTLS) is
//     removed, since it belonged to another proxy. Direct removes proxy-url. A Tunnel
//     also sets server and tls-server-name, as in Build.
//
// The cluster entry is changed for each context that uses it: it is one
// cluster, and has one route. A user entry that a context of another cluster
// uses is not changed: that is an error, since these credentials are not for
// it.
func Merge(existing []byte, s Spec) ([]byte, error) {
	m, err := newMerge(existing)
	if err != nil {
		return nil, err
	}
	if err := m.check(s); err != nil {
		return nil, err
	}
	if err := m.setCluster(); err != nil {
		return nil, err
	}
	if err := m.setUser(); err != nil {
		return nil, err
	}
	return m.text()
}

// merge is one Merge under way.
type merge struct {
	existing []byte
	document *yaml.Node
	root     *yaml.Node     // its mapping
	current  *entry.Current // the present entries; only read
	userName string
	config   *clientcmdapi.Config
	cluster  *clientcmdapi.Cluster // what is to be there
	user     *clientcmdapi.AuthInfo

	// Of the Spec, checked.
	spec     Spec // with what a tunnel fills in
	now      time.Time
	specCA   bool                // Spec.CA is set
	ca       []*x509.Certificate // Spec.CA
	proxyURL string
	given    *clientcmdapi.AuthInfo // of Spec.Credentials; nil if one is to be signed
	signers  []*x509.Certificate    // the CA to sign it with
	issuer   *x509.Certificate      // the one of signers that does
}

func newMerge(existing []byte) (*merge, error) {
	document, root, err := entry.ParseText(existing)
	if err != nil {
		return nil, field.Wrap("existing", err)
	}
	config, err := entry.Load(existing)
	if err != nil {
		return nil, field.Wrap("existing", err)
	}
	current, err := entry.FollowContext(config)
	if err != nil {
		return nil, err
	}
	return &merge{
		existing: existing, document: document, root: root, current: current, config: config, userName: config.Contexts[current.Context].AuthInfo,
		cluster: current.Cluster.DeepCopy(), user: current.User.DeepCopy(),
	}, nil
}

// check takes s, with what a tunnel fills in.
func (m *merge) check(s Spec) error {
	m.now = cmp.Or(s.Now, time.Now())
	var endpointErr, caErr, userErr error
	if (s.Endpoint != Endpoint{}) {
		endpointErr = s.checkEndpoint()
	}
	if m.specCA = len(s.CA) > 0; m.specCA {
		m.ca, caErr = parseCA(s.CA, m.now)
	}
	known := s.Credentials
	if known.isZero() && m.user != nil {
		known.Token = m.user.Token
	}
	routeErr := s.Route.check(known)
	proxyURL, proxyErr := s.Route.proxyURL()
	if !s.Credentials.isZero() {
		userErr = m.checkUser(s.Credentials)
	}
	if m.spec = s; s.Route.Tunnel != nil {
		m.spec = s.throughTunnel()
	}
	m.proxyURL = proxyURL
	return errors.Join(
		endpointErr, s.checkMoreEndpoints(),
		field.Wrap("CA", caErr),
		s.checkServerName(),
		userErr,
		field.Wrap("Route.ProxyURL", proxyErr),
		routeErr,
	)
}

// text writes what has changed into the document.
func (m *merge) text() ([]byte, error) {
	was, err := encodeEntries(m.current.Cluster, m.current.User)
	if err != nil {
		return nil, err
	}
	is, err := encodeEntries(m.cluster, m.user)
	if err != nil {
		return nil, err
	}
	clusters, err := m.editEntry("clusters", "cluster", m.current.ClusterName, was, is)
	if err != nil {
		return nil, err
	}
	users, err := m.editEntry("users", "user", m.userName, was, is)
	if err != nil {
		return nil, err
	}
	if users {
		if err := m.checkShared(); err != nil {
			return nil, err
		}
	}
	if !clusters && !users {
		return m.existing, nil
	}
	text, err := yamledit.Encode(m.document)
	return text, field.Wrap("existing", err)
}

// checkShared keeps credentials to their cluster.
func (m *merge) checkShared() error {
	for _, name := range slices.Sorted(maps.Keys(m.config.Contexts)) {
		if c := m.config.Contexts[name]; c != nil && c.AuthInfo == m.userName && c.Cluster != m.current.ClusterName {
			return field.Errorf(fmt.Sprintf("users[%q]", m.userName),
				"is used by context %q too, of another cluster: give the context %q a user of its own", name, m.current.Context)
		}
	}
	return nil
}

const writtenName = "x"

// encodeEntries returns the entries as client-go writes them.
func encodeEntries(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) (*yaml.Node, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[writtenName] = cluster
	if user != nil {
		config.AuthInfos[writtenName] = user
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, field.Errorf("existing", "can't be written as a kubeconfig")
	}
	_, root, err := yamledit.Parse(text)
	return root, field.Wrap("existing", err)
}

// editEntry copies the keys that differ between was and is into an entry of the
// document, and reports whether there are any.
func (m *merge) editEntry(list, key, name string, was, is *yaml.Node) (bool, error) {
	entry := func(root *yaml.Node) *yaml.Node {
		item, _ := yamledit.Named(yamledit.Child(root, list), writtenName)
		return yamledit.Child(item, key)
	}
	before, after := entry(was), entry(is)
	if yamledit.Same(before, after) {
		return false, nil
	}
	item, _ := yamledit.Named(yamledit.Child(m.root, list), name)
	if item == nil {
		return false, field.Errorf(fmt.Sprintf("%s[%q]", list, name), "its name is not written as a string")
	}
	target := yamledit.Child(item, key)
	if target == nil {
		target = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		yamledit.SetChild(item, key, target)
	}
	keyOf := func(n *yaml.Node) string { return n.Value }
	for _, k := range listNames(2, keyOf, before, after) {
		switch value := yamledit.Child(after, k); {
		case yamledit.Same(yamledit.Child(before, k), value):
		case k == "extensions":
			editExtensions(target, yamledit.Child(before, k), value)
		case value == nil:
			yamledit.DropChild(target, k)
		default:
			yamledit.SetChild(target, k, value)
		}
	}
	return true, nil
}

func editExtensions(target, before, after *yaml.Node) {
	nameOf := func(n *yaml.Node) string { return yamledit.Child(n, "name").Value }
	for _, name := range listNames(1, nameOf, before, after) {
		was, _ := yamledit.Named(before, name)
		is, _ := yamledit.Named(after, name)
		switch {
		case yamledit.Same(was, is):
		case is == nil:
			yamledit.DropNamed(target, "extensions", name)
		default:
			yamledit.SetNamed(target, "extensions", name, "extension", yamledit.Child(is, "extension"))
		}
	}
}

// listNames returns the names in both, each once: every second node of a mapping has one, and every
// node of a list.
func listNames(step int, nameOf func(*yaml.Node) string, both ...*yaml.Node) (names []string) {
	for _, from := range both {
		for i := 0; from != nil && i < len(from.Content); i += step {
			names = append(names, nameOf(from.Content[i]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isZero reports whether r says nothing.
func (r Route) isZero() bool { return !r.Direct && !r.viaProxy() }

func (c Credentials) isZero() bool { return len(c.authMethods()) == 0 }
