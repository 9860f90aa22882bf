package gateway_test

import (
	"io"
	"testing"
)

// BenchmarkUpload is an upload of 64 MiB, for each door that speaks HTTP/2: its flow
// control is ours.
func BenchmarkUpload(b *testing.B) {
	for _, d := range doors() {
		if d.name != "connect, h2" && d.name != "connect, h2 by prior knowledge" {
			continue
		}
		b.Run(d.name, func(b *testing.B) {
			const size = 64 << 20
			client, target := newBed(b, d, nil).pair()
			block := make([]byte, 256<<10)
			b.SetBytes(size)
			began := cpu()
			for b.Loop() {
				go func() {
					for range size / len(block) {
						client.Write(block)
					}
				}()
				if _, err := io.CopyN(io.Discard, target, size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu()-began).Seconds()/float64(b.N)*1e9/size, "cpu-s/GB")
		})
	}
}
