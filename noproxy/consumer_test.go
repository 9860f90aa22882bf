package noproxy_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/causewayproject/causeway/noproxy"
)

// columns are the verdicts of the newest version of each consumer that was asked.
var columns = map[noproxy.Consumer]string{
	noproxy.Go:       "want_go",
	noproxy.Curl:     "want_curl",
	noproxy.Wget:     "want_wget_1_21_3",
	noproxy.Urllib:   "want_urllib_3_11",
	noproxy.Requests: "want_requests_2_34_2",
	noproxy.Ruby:     "want_ruby_3_1",
	noproxy.Undici:   "want_undici_8_12_4",
	noproxy.JVM:      "want_jvm_17",
}

func TestConsumerVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/noproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for consumer, column := range columns {
		t.Run(consumer.String(), func(t *testing.T) {
			asked, refused := 0, 0
			for i, row := range rows {
				list, host, port := row["no_proxy"].(string), row["host"].(string), row["port"].(string)
				if port == "" {
					port = row["scheme"].(string)
				}
				verdict, there := row[column]
				if !there {
					continue // it was not asked
				}
				want, ok := verdict.(bool)
				if ok {
					asked++
				} else {
					refused++
				}
				// A URL that is refused is not fetched directly either.
				if got := consumer.Bypass(list, host, port); got != want {
					t.Errorf("%d: Bypass(%q, %q, %q): got %v, want %v", i, list, host, port, got, row[column])
				}
			}
			if asked < 380 || asked+refused < minVectors {
				t.Errorf("got %d verdicts and %d refusals, want at least 380 and %d in all", asked, refused, minVectors)
			}
			t.Logf("%d verdicts, %d refusals", asked, refused)
		})
	}
}

// TestConsumerCorners has what the sources say and no vector asks.
func TestConsumerCorners(t *testing.T) {
	tests := []struct {
		name             string
		consumer         noproxy.Consumer
		list, host, port string
		want             bool
	}{
		{"implicit port", noproxy.Go, "example.com:443", "example.com", "https", true},
		{"implicit port, other scheme", noproxy.Go, "example.com:443", "example.com", "http", false},
		{"no port at all", noproxy.Go, "example.com:443", "example.com", "", false},
		{"implicit port", noproxy.Urllib, "example.com:443", "example.com", "https", false},
		{"written port", noproxy.Urllib, "example.com:443", "example.com", "443", true},
		{"implicit port", noproxy.Requests, "example.com:443", "example.com", "https", false},
		{"implicit port", noproxy.Ruby, "example.com:443", "example.com", "https", true},
		{"implicit port", noproxy.Undici, "example.com:443", "example.com", "https", true},
		{"port that is larger than any", noproxy.Undici, "example.com:99999999999999999999", "example.com", "443", false},
		{"port that is larger than any", noproxy.Ruby, "example.com:99999999999999999999", "example.com", "443", false},

		{"last group of an IPv6 item", noproxy.Ruby, "2001:db8::1", "8.8.8.1", "443", true},
		{"mask", noproxy.Ruby, "10.0.0.0/255.0.0.0", "10.1.2.3", "443", true},
		{"mask with a hole", noproxy.Ruby, "10.0.0.0/255.0.255.0", "10.0.0.1", "443", false},
		{"length zero", noproxy.Ruby, "0.0.0.0/0", "8.8.8.8", "443", true},
		{"length zero", noproxy.Curl, "0.0.0.0/0", "8.8.8.8", "443", false},
		{"length zero", noproxy.Curl, "0.0.0.0/0", "0.0.0.0", "443", true},
		{"five octets", noproxy.Requests, "10.0.0.0/8", "10.0.0.1.0", "443", false},
		{"length zero", noproxy.Requests, "0.0.0.0/0", "8.8.8.8", "443", false},
		{"IDN with a dot", noproxy.Curl, "xn--bcher-kva.example", "b\u00fccher.example.", "443", true},
		{"IDN that is none", noproxy.Curl, "*", "a..b\u00fccher.example", "443", false},
		{"two dots", noproxy.Curl, "*", "example.com..", "443", false},
		{"fullwidth digits", noproxy.Curl, "1", "\uff11\uff10.1", "443", true},
		{"blank ends the list", noproxy.Curl, "a.com b.com,c.com", "c.com", "443", false},
		{"blank before a comma", noproxy.Curl, "a.com ,c.com", "c.com", "443", true},
		{"empty item", noproxy.Wget, "a.com,,b.com", "example.com.", "443", true},
		{"empty item", noproxy.Wget, "a.com,,b.com", "example.com", "443", false},
		{"blank before the first item", noproxy.Wget, " a.com", "a.com", "443", false},
		{"blank after an item", noproxy.Wget, "a.com ,b.com", "a.com", "443", false},
		{"text of an address", noproxy.Wget, "0.0.1", "10.0.0.1", "443", true},
		{"invalid IPv6", noproxy.Curl, "1::2::3", "1::2::3", "443", false},
		{"xn-- that begins no label", noproxy.Undici, "com", "www.0xn--.com", "443", true},
		{"xn-- that stands for nothing", noproxy.Undici, "com", "xn--.com", "443", false},
		{"IDN in a later label", noproxy.Undici, "com", "a.xn--bcher-kva.com", "443", true},
		{"a number that is no address", noproxy.Undici, "example.256", "example.256", "443", false},
		{"none", noproxy.Consumer(0), "*", "example.com", "443", false},
		{"none", noproxy.Consumer(99), "*", "example.com", "443", false},
	}
	for _, tt := range tests {
		t.Run(tt.consumer.String()+"/"+tt.name, func(t *testing.T) {
			if got := tt.consumer.Bypass(tt.list, tt.host, tt.port); got != tt.want {
				t.Errorf("Bypass(%q, %q, %q): got %v, want %v", tt.list, tt.host, tt.port, got, tt.want)
			}
		})
	}
}

func TestConsumerNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range noproxy.Consumers() {
		name, err := c.MarshalText()
		if err != nil || seen[string(name)] {
			t.Errorf("%v: got %q, %v, want a name of its own", c, name, err)
		}
		seen[string(name)] = true
		var back noproxy.Consumer
		if err := back.UnmarshalText(name); err != nil || back != c {
			t.Errorf("UnmarshalText(%q): got %v, %v, want %v", name, back, err, c)
		}
	}
	if len(seen) != 8 {
		t.Errorf("got %d consumers, want 8", len(seen))
	}
	if c, err := noproxy.ParseConsumer("cURL"); err == nil {
		t.Errorf("ParseConsumer of an unknown name: got %v, want an error", c)
	}
	if got := noproxy.Consumer(0).String(); got != "Consumer(0)" {
		t.Errorf("zero: got %q", got)
	}
}

func FuzzConsumer(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port)
	}
	f.Fuzz(func(t *testing.T, list, host, port string) {
		for _, c := range noproxy.Consumers() {
			first := c.Bypass(list, host, port)
			if second := c.Bypass(list, host, port); first != second {
				t.Errorf("%v.Bypass(%q, %q, %q): got %v, then %v", c, list, host, port, first, second)
			}
		}
		if got, want := noproxy.Go.Bypass(list, host, port), noproxy.Parse(list).Bypass(host, port); port != "http" && port != "https" && got != want {
			t.Errorf("Go.Bypass(%q, %q, %q): got %v, want %v as Rules.Bypass", list, host, port, got, want)
		}
	})
}
