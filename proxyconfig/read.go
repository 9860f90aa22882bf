package proxyconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ReadValues returns the configuration that documents of values hold: those of
// the ConfigMap and the Secret <cluster>-cluster-values, or an installation's
// proxy section. Each setting is read from any of these keys. Others are
// ignored, but not within a proxy section, where one is likely a slip:
//
//	cluster.proxy.http, .https, .noProxy        as charts of today read them
//	cluster.proxy.httpProxy, .httpsProxy        those of Giant Swarm's RFC
//	proxy.*                                     all of them, without cluster
//	http_proxy, https_proxy, no_proxy           those of cert-manager-app 3
//	env: of HTTP_PROXY, HTTPS_PROXY, NO_PROXY   those of external-dns-app; either case
//
// Places that disagree are an error, and so are a key that is there twice, a second
// document in one text, and what is not valid: a [*FieldError] which names the key,
// and holds no value.
func ReadValues(documents ...[]byte) (Config, error) {
	var found [3]setting
	var errs []error
	for i, text := range documents {
		v, err := decodeValues(text)
		if err != nil {
			errs = append(errs, fieldError(fmt.Sprintf("documents[%d]", i), err))
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

// decodeValues returns no error of a decoder's, whose text quotes the document.
func decodeValues(text []byte) (v values, err error) {
	var sections struct {
		Proxy   map[string]any `json:"proxy"`
		Cluster struct {
			Proxy map[string]any `json:"proxy"`
		} `json:"cluster"`
	}
	decoder := goyaml.NewDecoder(bytes.NewReader(text))
	if first, second := decoder.Decode(new(goyaml.Node)), decoder.Decode(new(goyaml.Node)); first == nil && second == nil {
		return v, errors.New("more than one document of YAML")
	}
	if _, err := yaml.YAMLToJSONStrict(text); err != nil {
		return v, errors.New("not YAML, or a key is there twice")
	}
	if yaml.Unmarshal(text, &v) != nil || yaml.Unmarshal(text, &sections) != nil {
		return v, errors.New("not YAML with the types of values")
	}
	for _, section := range []struct {
		name string
		keys map[string]any
	}{{"proxy", sections.Proxy}, {"cluster.proxy", sections.Cluster.Proxy}} {
		for key := range section.keys {
			if !slices.Contains(proxyKeys, key) {
				return v, fmt.Errorf("%s has an unknown key; want one of %s", section.name, strings.Join(proxyKeys, ", "))
			}
		}
	}
	return v, nil
}

var proxyKeys = []string{"http", "https", "noProxy", "httpProxy", "httpsProxy"}

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
