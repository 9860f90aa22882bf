package proxyconfig

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ReadValues returns the configuration that documents of values hold: those of
// the ConfigMap and the Secret <cluster>-cluster-values, or an installation's
// proxy section. Each setting is read from any of these keys; others are
// ignored:
//
//	cluster.proxy.http, .https, .noProxy        as charts of today read them
//	cluster.proxy.httpProxy, .httpsProxy        those of Giant Swarm's RFC
//	proxy.*                                     all of them, without cluster
//	http_proxy, https_proxy, no_proxy           those of cert-manager-app 3
//	env: of HTTP_PROXY, HTTPS_PROXY, NO_PROXY   those of external-dns-app; either case
//
// Places that disagree are an error, and so is what is not valid: a [*FieldError]
// which names the key, and holds no value.
func ReadValues(documents ...[]byte) (Config, error) {
	var found [3]setting
	var errs []error
	for i, text := range documents {
		var v values
		// The text of a YAML error quotes the document.
		if yaml.Unmarshal(text, &v) != nil {
			errs = append(errs, fieldErrorf(fmt.Sprintf("documents[%d]", i), "not YAML with the types of values"))
			continue
		}
		for _, p := range v.allPlaces() {
			errs = append(errs, found[p.setting].takeValue(p.key, p.value))
		}
	}
	c := Config{HTTPProxy: found[0].value, HTTPSProxy: found[1].value, NoProxy: found[2].value}
	for i, err := range []error{checkURL(c.HTTPProxy), checkURL(c.HTTPSProxy), checkList(c.NoProxy)} {
		errs = append(errs, fieldError(found[i].key, err))
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// setting is one that was read, and where.
type setting struct{ key, value string }

func (s *setting) takeValue(key, value string) error {
	switch {
	case value == "" || value == s.value:
		return nil
	case s.value != "":
		return fieldErrorf(key, "differs from %s", s.key)
	}
	s.key, s.value = key, value
	return nil
}

type place struct {
	setting    int // an index into found in ReadValues
	key, value string
}

// allPlaces are all that a document may hold, set or not.
func (v values) allPlaces() []place {
	var all []place
	section := func(prefix string, p *proxySection) {
		if p != nil {
			all = append(all, place{0, prefix + ".http", p.HTTP}, place{1, prefix + ".https", p.HTTPS}, place{2, prefix + ".noProxy", p.NoProxy},
				place{0, prefix + ".httpProxy", p.HTTPProxy}, place{1, prefix + ".httpsProxy", p.HTTPSProxy})
		}
	}
	if v.Cluster != nil {
		section("cluster.proxy", v.Cluster.Proxy)
	}
	section("proxy", v.Proxy)
	all = append(all, place{0, "http_proxy", v.HTTPProxy}, place{1, "https_proxy", v.HTTPSProxy}, place{2, "no_proxy", v.NoProxy})
	for _, e := range v.Env {
		for i, name := range []string{httpProxy, httpsProxy, noProxy} {
			if e.Name == name || e.Name == lower[name] {
				all = append(all, place{i, "env " + e.Name, plainValue(e)})
			}
		}
	}
	return all
}

func plainValue(e corev1.EnvVar) string {
	if e.ValueFrom != nil {
		return ""
	}
	return e.Value
}
