// The check that an outsider can import and install what is published. Kept apart from
// the library's module, so that who imports the library does not see what it needs.
module github.com/causewayproject/causeway/internal/release

go 1.26.0

require golang.org/x/mod v0.42.0
