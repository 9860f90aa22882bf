package proxyconfig

import (
	"bytes"
	"cmp"
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
//	global.connectivity.proxy.*                 the same, as chart cluster 8 reads them
//	http_proxy, https_proxy, no_proxy           those of cert-manager-app 3
//	env: of HTTP_PROXY, HTTPS_PROXY, NO_PROXY   those of external-dns-app; either case
//
// A section with enabled: false sets nothing. Places that disagree are an error, and so are
// a key that is there twice, a second document in one text, and what is not valid: a
// [*FieldError] which names the key, and holds no value.
func ReadValues(documents ...[]byte) (Config, error) {
	o, err := ReadOverride(documents...)
	return o.Config, err
}

// ReadOverride is [ReadValues] for documents that change an installation's configuration: a
// section with enabled: false makes it Direct.
func ReadOverride(documents ...[]byte) (Override, error) {
	var found [4]setting
	var errs []error
	for i, text := range documents {
		v, err := decodeValues(text)
		places, unknown := v.allPlaces()
		if err := cmp.Or(err, unknown); err != nil {
			errs = append(errs, fieldError(fmt.Sprintf("documents[%d]", i), err))
			continue
		}
		for _, p := range places {
			errs = append(errs, found[p.setting].takeValue(p.key, p.value))
		}
	}
	c := Config{HTTPProxy: found[0].value, HTTPSProxy: found[1].value, NoProxy: found[2].value}
	for i, err := range []error{checkURL(c.HTTPProxy), checkURL(c.HTTPSProxy), checkList(c.NoProxy)} {
		errs = append(errs, fieldError(found[i].key, err))
	}
	if err := errors.Join(errs...); err != nil {
		return Override{}, err
	}
	return Override{Config: c, Direct: found[sectionEnabled].value == "false"}, nil
}

// values are the keys of the documents that concern proxies: all that were ever written.
type values struct {
	Proxy   map[string]string `json:"proxy"`
	Cluster struct {
		Proxy map[string]string `json:"proxy"`
	} `json:"cluster"`
	Global struct {
		Connectivity struct {
			Proxy map[string]string `json:"proxy"`
		} `json:"connectivity"`
	} `json:"global"`
	Env        []corev1.EnvVar `json:"env"`
	HTTPProxy  string          `json:"http_proxy"`
	HTTPSProxy string          `json:"https_proxy"`
	NoProxy    string          `json:"no_proxy"`
}

// decodeValues returns no error of a decoder's, whose text quotes the document.
func decodeValues(text []byte) (v values, err error) {
	decoder := goyaml.NewDecoder(bytes.NewReader(text))
	if first, second := decoder.Decode(new(goyaml.Node)), decoder.Decode(new(goyaml.Node)); first == nil && second == nil {
		return v, errors.New("more than one document of YAML")
	}
	if _, err := yaml.YAMLToJSONStrict(text); err != nil {
		return v, errors.New("not YAML, or a key is there twice")
	}
	if yaml.Unmarshal(text, &v) != nil {
		return v, errors.New("not YAML with the types of values")
	}
	return v, nil
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

// sectionEnabled is the setting of a section's key enabled.
const sectionEnabled = 3

// proxyKeys are those of a proxy section, and the settings that they are.
var proxyKeys = []struct {
	key     string
	setting int
}{{"http", 0}, {"https", 1}, {"noProxy", 2}, {"httpProxy", 0}, {"httpsProxy", 1}, {"enabled", sectionEnabled}}

// allPlaces are all that a document may hold, set or not. The error names a section with
// a key of another name.
func (v values) allPlaces() (all []place, err error) {
	for _, section := range []struct {
		name string
		keys map[string]string
	}{{"cluster.proxy", v.Cluster.Proxy}, {"proxy", v.Proxy}, {"global.connectivity.proxy", v.Global.Connectivity.Proxy}} {
		enabled := section.keys["enabled"]
		if enabled != "" && enabled != "true" && enabled != "false" {
			return nil, fmt.Errorf("%s.enabled is not true or false", section.name)
		}
		var known []string
		for _, p := range proxyKeys {
			known = append(known, p.key)
			if enabled != "false" || p.setting == sectionEnabled {
				all = append(all, place{p.setting, section.name + "." + p.key, section.keys[p.key]})
			}
		}
		for key := range section.keys {
			if !slices.Contains(known, key) {
				return nil, fmt.Errorf("%s has an unknown key; want one of %s", section.name, strings.Join(known, ", "))
			}
		}
	}
	all = append(all, place{0, "http_proxy", v.HTTPProxy}, place{1, "https_proxy", v.HTTPSProxy}, place{2, "no_proxy", v.NoProxy})
	for _, e := range v.Env {
		for i, name := range []string{httpProxy, httpsProxy, noProxy} {
			if e.ValueFrom == nil && (e.Name == name || e.Name == lower[name]) {
				all = append(all, place{i, "env " + e.Name, e.Value})
			}
		}
	}
	return all, nil
}
