package proxyconfig

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/noproxy"
)

// Layers are the places that a cluster's configuration is from.
type Layers struct {
	// Installation is what all clusters have in common, such as the corporate
	// proxy and the internal names. Its zero value says nothing.
	Installation Config

	// Cluster computes what this cluster reaches directly. Its zero value has
	// the names of services and the loopback addresses.
	Cluster noproxy.Cluster

	// User has the changes that the cluster's owner wants. Its zero value changes
	// nothing.
	User Override
}

// Override changes the installation's configuration for one cluster, in one
// place.
type Override struct {
	// Config has the URLs to use, where they are set, and items that are added
	// to the list.
	Config

	// Direct drops the installation's proxies: the cluster uses those of Config,
	// or none.
	Direct bool

	// OwnList drops the installation's list. What Cluster computes stays: without
	// it the cluster would not work.
	OwnList bool
}

// Merged is a configuration that knows where it is from. It prints without its
// secrets, as its Config does.
type Merged struct {
	Config

	// HTTPProxyFrom and HTTPSProxyFrom are the layers that gave the URLs:
	// FromInstallation, FromUser, or "" for a URL that is not set.
	HTTPProxyFrom, HTTPSProxyFrom string

	// List is NoProxy with the provenance of each entry: FromInstallation,
	// FromUser, or what [noproxy.Cluster] says. NoProxy has the addresses that it
	// marks as within a network, too, since not all programs read networks.
	List noproxy.List
}

// The provenance of what is not computed.
const (
	FromInstallation = "installation"
	FromUser         = "user"
)

// Merge returns the configuration of the cluster. The user's URLs come before the
// installation's; the lists of all layers are merged by package noproxy, in the
// order of Cluster.Layout.
//
// An error wraps a [*FieldError] or a [*noproxy.FieldError] for each field that
// can't be used, without its value.
func (l Layers) Merge() (*Merged, error) {
	computed, err := l.Cluster.List()
	if err := errors.Join(prefixFields("Installation", l.Installation.Validate()), prefixFields("User", l.User.Validate()), err); err != nil {
		return nil, err
	}
	var m Merged
	for _, layer := range []struct {
		from       string
		config     Config
		urls, list bool
	}{
		{FromInstallation, l.Installation, !l.User.Direct, !l.User.OwnList},
		{FromUser, l.User.Config, true, true},
	} {
		if c := layer.config; layer.urls && c.HTTPProxy != "" {
			m.HTTPProxy, m.HTTPProxyFrom = c.HTTPProxy, layer.from
		}
		if c := layer.config; layer.urls && c.HTTPSProxy != "" {
			m.HTTPSProxy, m.HTTPSProxyFrom = c.HTTPSProxy, layer.from
		}
		if layer.list {
			m.List = append(m.List, noproxy.ParseList(layer.config.NoProxy, layer.from)...)
		}
	}
	m.List = joinLists(computed, m.List, l.Cluster.Layout)
	m.NoProxy = sharedList(m.List)
	if err := prefixFields("Merged", m.Validate()); err != nil {
		return nil, err // too long in total
	}
	return &m, nil
}

// sharedList is the list for programs of all kinds. Beside a network it has the
// addresses of it that somebody named, since Python, wget and others read no networks.
func sharedList(l noproxy.List) string {
	var items []string
	for _, e := range l {
		_, err := netip.ParseAddr(e.Text)
		named := err == nil && strings.Contains(e.Within, "/") && !slices.Contains(items, e.Text)
		if e.Skipped == "" && (e.Within == "" || named) {
			items = append(items, e.Text)
		}
	}
	return strings.Join(items, ",")
}

// joinLists puts others into a cluster's list. In Giant Swarm's order they come before
// what ends each list, and nothing is left out because something else covers it.
func joinLists(computed, others noproxy.List, layout noproxy.Layout) noproxy.List {
	if layout != noproxy.GiantSwarm {
		return noproxy.Merge(computed, others)
	}
	end := len(computed)
	for end > 0 && computed[end-1].From == "every cluster" {
		end--
	}
	return append(append(computed[:end:end], others...), computed[end:]...)
}

// prefixFields names the layer in front of the fields of its errors.
func prefixFields(layer string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		if f, ok := err.(*FieldError); ok {
			err = &FieldError{Field: layer + "." + f.Field, Err: f.Err}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
