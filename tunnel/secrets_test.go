package tunnel_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// spelt returns the ways in which a key, or what makes a token one, could show.
func spelt(t testing.TB, token string, keys ...any) (all []string) {
	_, signature := tokenParts(t, token)
	secret := []byte(token[len(token)-40:])
	all = append(all, string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)), strings.Trim(fmt.Sprint(secret), "[]"),
		hex.EncodeToString(signature), strings.Trim(fmt.Sprint(signature), "[]"))
	for _, key := range keys {
		d := must(key.(*ecdsa.PrivateKey).Bytes())(t)
		all = append(all, new(big.Int).SetBytes(d).String(), hex.EncodeToString(d), fmt.Sprintf("%X", d), strings.Trim(fmt.Sprint(d), "[]"),
			strings.TrimRight(base64.StdEncoding.EncodeToString(d), "=")[:40])
	}
	return all
}

// TestSecretsDoNotShow prints everything by every means.
func TestSecretsDoNotShow(t *testing.T) {
	s := newTunnelServer(t, &tunnel.MemoryStore{})
	inv, c, a := s.invite("prod"), s.enrolled("prod"), s.authority.Load()
	secrets := spelt(t, inv.Token, c.Key, a.Key)
	certPEM, keyPEM, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	saved := &tunnel.MemoryCredentials{}
	if err := saved.Save(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	_, badKey := tunnel.ParseAuthority(certPEM, keyPEM[:len(keyPEM)/2])
	_, otherKey := tunnel.ParseAuthority(certPEM, []byte(pemOf(t, c)))
	_, badText := tunnel.ParseInvitation(strings.Replace(inv.Reveal(), ".", "=", 1))
	_, twice := tunnel.ParseInvitation(inv.Reveal() + inv.Reveal())
	_, _, refused, hook := s.enroll(tunnel.Invitation{Token: inv.Token + "x", Pin: inv.Pin}, newKey(t))
	_, _, pin, _ := s.enroll(tunnel.Invitation{Token: inv.Token, Pin: "sha256:x"}, newKey(t))
	for _, err := range []error{badKey, otherKey, badText, twice, refused, hook, pin} {
		if err == nil {
			t.Error("an error is missing")
		}
	}
	type all struct {
		I tunnel.Invitation
		C tunnel.Credentials
		A tunnel.Authority
	}
	values := []any{inv, &inv, *c, c, *a, a, all{inv, *c, *a}, &all{inv, *c, *a}, []tunnel.Credentials{*c}, map[string]tunnel.Authority{"a": *a},
		[]tunnel.Invitation{inv}, s.store, saved, s.registrar, c.TLSConfig(), s.registrar.TLSConfig(), tunnel.EnrollTLS(inv.Pin),
		badKey, otherKey, badText, twice, refused, hook, pin}
	for _, v := range values {
		for how, text := range shown(v) {
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%T by %s shows a secret: %.200s", v, how, text)
				}
			}
		}
	}
	if !strings.Contains(inv.Reveal(), secrets[0]) || !strings.Contains(fmt.Sprint([]byte(inv.Token)), secrets[3]) {
		t.Error("this test would not know a secret")
	}
}

func shown(v any) map[string]string {
	texts := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		texts[verb] = fmt.Sprintf(verb, v)
	}
	if b, err := json.Marshal(v); err == nil {
		texts["json"] = string(b)
	}
	if b, err := xml.Marshal(v); err == nil {
		texts["xml"] = string(b)
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	texts["slog"] = b.String()
	return texts
}
