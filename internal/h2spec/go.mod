// h2spec against the gateway's HTTP/2 door. Kept apart from the library's
// module, so that who imports the library does not see what only this test needs.
module github.com/causewayproject/causeway/internal/h2spec

go 1.26.0

replace github.com/causewayproject/causeway => ../..

require (
	github.com/causewayproject/causeway v0.0.0-00010101000000-000000000000
	github.com/summerwind/h2spec v2.2.1+incompatible
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.62.0
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
