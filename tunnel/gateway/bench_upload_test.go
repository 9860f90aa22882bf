//go:build unix

package gateway_test

import "testing"

// BenchmarkUpload is an upload of 64 MiB, for each door that speaks HTTP/2: its flow
// control is ours.
func BenchmarkUpload(b *testing.B) {
	for _, d := range doors() {
		if d.name != "connect, h2" && d.name != "connect, h2 by prior knowledge" {
			continue
		}
		b.Run(d.name, func(b *testing.B) {
			client, target := newBed(b, d, nil).pair()
			carry(b, client, target)
		})
	}
}
