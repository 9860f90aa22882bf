package noproxy_test

import (
	"testing"

	"github.com/causewayproject/causeway/noproxy"
)

// TestJVM has what sun.net.spi.DefaultProxySelector does with the corners of a
// pattern.
func TestJVM(t *testing.T) {
	tests := []struct {
		name, list, host string
		want             bool
	}{
		{"exact", "example.com", "example.com", true},
		{"not below", "example.com", "www.example.com", false},
		{"upper case", "EXAMPLE.com", "Example.COM", true},
		{"bar", "a.com|b.com", "b.com", true},
		{"comma", "a.com,b.com", "b.com", true},
		{"blank before", "a.com, b.com", "b.com", false},
		{"blank behind", "a.com ,b.com", "a.com", false},
		{"blank before an asterisk", "a.com, *", "b.com", false},
		{"blank after an asterisk", "* ", "b.com", false},
		{"IDN, as it is written", "b\u00fccher.example", "B\u00dcCHER.example", true},
		{"IDN, converted", "xn--bcher-kva.example", "b\u00fccher.example", false},
		{"implied loopback beside a blank", " ", "127.0.0.1", true},
		{"asterisk before", "*.example.com", "a.b.example.com", true},
		{"asterisk before, apex", "*.example.com", "example.com", false},
		{"asterisk before a word", "*example.com", "notexample.com", true},
		{"asterisk behind", "10.*", "10.1.2.3", true},
		{"asterisk behind, a name", "10.*", "10.example.com", true},
		{"asterisk behind, miss", "10.*", "110.1.2.3", false},
		{"asterisk at both ends", "*example*", "www.example.com", true},
		{"asterisk inside", "www.*.com", "www.example.com", false},
		{"lone asterisk", "*", "example.com", true},
		{"two asterisks", "**", "example.com", true},
		{"leading dot", ".example.com", "www.example.com", false},
		{"network", "10.0.0.0/8", "10.0.0.1", false},
		{"port", "example.com:443", "example.com", false},
		{"IPv6", "[2001:db8::1]", "2001:db8::1", true},
		{"IPv6 without brackets", "2001:db8::1", "2001:db8::1", false},
		{"IPv6 prefix", "[2001:db8:*", "2001:db8::1", true},
		{"trailing dot", "example.com", "example.com.", false},
		{"implied localhost", "example.com", "localhost", true},
		{"implied loopback", "", "127.0.0.1", true},
		{"implied IPv6 loopback", "example.com", "::1", true},
		{"implied unspecified", "example.com", "0.0.0.0", true},
		{"nothing implied below localhost", "", "a.localhost", false},
		{"empty host", "*", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := noproxy.JVM.Bypass(tt.list, tt.host, "443"); got != tt.want {
				t.Errorf("Bypass(%q, %q): got %v, want %v", tt.list, tt.host, got, tt.want)
			}
		})
	}
}
