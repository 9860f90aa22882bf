package propagate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

// LabelOverride marks the Secrets <cluster>-proxy-override. Its value says
// nothing; one without it is not seen. As an annotation of the Secrets that are written, it
// says that there was an override which changed something.
const LabelOverride = "causewayproject.github.io/proxy-override"

// Keys of the installation's Secret, and of a Secret <cluster>-proxy-override.
// Another key is an error. HTTP_PROXY, HTTPS_PROXY and NO_PROXY are as
// [proxyconfig.Config.EnvSecretData] makes them; KeyValues is a document for
// [proxyconfig.ReadValues]. Keys that set the same thing have to agree. Line ends behind
// a value are left out, as those of files.
const (
	KeyValues     = "values"
	KeyHTTPProxy  = "HTTP_PROXY"
	KeyHTTPSProxy = "HTTPS_PROXY"
	KeyNoProxy    = "NO_PROXY"

	// KeyDirect, "true" or "false": of an override, that the installation's proxies are
	// not used, and with "false", if nothing else is set, that its settings end; of the
	// installation's Secret, that it may name none.
	KeyDirect = "direct"

	// Only of an override.

	KeyOwnList     = "ownList"     // "true" or "false": drop the installation's list
	KeyContainerd  = "containerd"  // "computed" or "installation": see Config.ContainerdInstallation
	KeyCredentials = "credentials" // "everywhere", "machines" or "nowhere": see Config.Credentials
)

// SourceError says what is wrong with a Secret that people write: the
// installation's, or an override. It repeats no value of the Secret.
type SourceError struct {
	Secret string // namespace/name
	Key    string // "" unless the error concerns one key
	Err    error
}

// Error names the Secret and the key.
func (e *SourceError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("propagate: Secret %s: %v", e.Secret, e.Err)
	}
	return fmt.Sprintf("propagate: Secret %s: key %s: %v", e.Secret, e.Key, e.Err)
}

// Unwrap returns Err.
func (e *SourceError) Unwrap() error { return e.Err }

// override has the settings of a Secret. A nil pointer is a setting that it lacks.
type override struct {
	proxyconfig.Override
	containerdInstallation *bool
	credentials            *proxyconfig.Credentials

	hasWord    bool // it has a key that is a word
	idleValues bool // it has the key values, which sets nothing
}

// isChange reports whether it changes something of the installation's.
func (o override) isChange() bool {
	return o.Override != proxyconfig.Override{} || o.containerdInstallation != nil || o.credentials != nil
}

// settingsByKey are the keys that are words, and what takes them.
func (o *override) settingsByKey() map[string]func(text string) error {
	return map[string]func(string) error{
		KeyDirect:  func(text string) error { return setBool(&o.Direct, text) },
		KeyOwnList: func(text string) error { return setBool(&o.OwnList, text) },
		KeyContainerd: func(text string) error {
			return setChoice(&o.containerdInstallation, text, map[string]bool{"computed": false, "installation": true})
		},
		KeyCredentials: func(text string) error {
			return setChoice(&o.credentials, text, map[string]proxyconfig.Credentials{
				"everywhere": proxyconfig.CredentialsEverywhere,
				"machines":   proxyconfig.CredentialsOnMachines,
				"nowhere":    proxyconfig.CredentialsNowhere,
			})
		},
	}
}

func setBool(to *bool, text string) error {
	if text != "true" && text != "false" {
		return errors.New("want true or false")
	}
	*to = text == "true"
	return nil
}

func setChoice[T any](to **T, text string, of map[string]T) error {
	value, ok := of[text]
	if !ok {
		return errors.New("want " + strings.Join(slices.Sorted(maps.Keys(of)), " or "))
	}
	*to = &value
	return nil
}

// readSource reads a Secret that has the proxies' keys and some of the words.
func readSource(secret *corev1.Secret, documents [][]byte, words ...string) (override, error) {
	var (
		o         override
		errs      []error
		variables []corev1.EnvVar
	)
	fail := func(key string, err error) {
		if err != nil {
			errs = append(errs, &SourceError{Secret: secret.Namespace + "/" + secret.Name, Key: key, Err: err})
		}
	}
	settings := o.settingsByKey()
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		value := secret.Data[key]
		switch {
		case key == KeyValues:
			documents = append(documents, value)
			read, err := proxyconfig.ReadOverride(value)
			o.idleValues = err == nil && read == proxyconfig.Override{}
		case key == KeyHTTPProxy, key == KeyHTTPSProxy, key == KeyNoProxy:
			// kubectl create secret --from-file takes the line's end too.
			variables = append(variables, corev1.EnvVar{Name: key, Value: strings.TrimRight(string(value), "\r\n")})
		case slices.Contains(words, key):
			o.hasWord = true
			fail(key, settings[key](strings.TrimSpace(string(value))))
		default:
			fail(key, fmt.Errorf("unknown; want one of %s", strings.Join(append([]string{KeyValues, KeyHTTPProxy, KeyHTTPSProxy, KeyNoProxy}, words...), ", ")))
		}
	}
	document, err := yaml.Marshal(map[string]any{"env": variables})
	if err == nil {
		var read proxyconfig.Override
		read, err = proxyconfig.ReadOverride(append(documents, document)...)
		o.Config, o.Direct = read.Config, o.Direct || read.Direct
	}
	fail("", err)
	return o, errors.Join(errs...)
}

// ReadInstallation returns what the installation's Secret, nil for none, says, together
// with further documents, as the Secret's key values may hold one.
// That there is no proxy has to be said by [KeyDirect]: a Secret that is gone, or
// was emptied, is an error. It wraps a [*SourceError] for each mistake.
func (c Config) ReadInstallation(secret *corev1.Secret, documents ...[]byte) (proxyconfig.Config, error) {
	if secret == nil {
		return proxyconfig.Config{}, &SourceError{Secret: c.Installation, Err: errors.New("there is none; what was written before stays")}
	}
	o, err := readSource(secret, documents, KeyDirect)
	if err != nil {
		return proxyconfig.Config{}, err
	}
	if o.HTTPProxy == "" && o.HTTPSProxy == "" && !o.Direct {
		return proxyconfig.Config{}, &SourceError{Secret: secret.Namespace + "/" + secret.Name,
			Err: errors.New("it names no proxy; if that is meant, set the key " + KeyDirect + " to true")}
	}
	if o.HTTPProxy+o.HTTPSProxy != "" && o.Direct {
		return proxyconfig.Config{}, &SourceError{Secret: secret.Namespace + "/" + secret.Name, Key: KeyDirect,
			Err: errors.New("it is true, or values have enabled: false, and there are proxies; want one of them")}
	}
	return o.Config, nil
}

// readOverride returns the zero override for no Secret.
func readOverride(secret *corev1.Secret) (override, error) {
	if secret == nil {
		return override{}, nil
	}
	return readSource(secret, nil, KeyDirect, KeyOwnList, KeyContainerd, KeyCredentials)
}
