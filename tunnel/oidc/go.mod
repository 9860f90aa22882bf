// Agents that join by a ServiceAccount token of their cluster. Kept apart from the
// library's module, so that who imports the library does not see go-jose.
module github.com/causewayproject/causeway/tunnel/oidc

go 1.26.0

toolchain go1.26.9

require (
	github.com/causewayproject/causeway v0.1.0
	github.com/go-jose/go-jose/v4 v4.1.8
	go.uber.org/goleak v1.3.0
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
