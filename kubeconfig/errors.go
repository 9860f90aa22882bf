package kubeconfig

import "github.com/causewayproject/causeway/kubeconfig/internal/field"

// FieldError says which field can't be used and what is expected of it. It
// holds no secret: neither its text nor Err repeats what a field held.
//
// It has two fields: Field is the path of the field, such as "Endpoint.Host"
// or "Route.ProxyURL"; Err, which Unwrap returns, is what is wrong and what is
// expected.
//
// [Spec.Build] reports all fields at once: the error that it returns wraps one
// FieldError each (errors.Join), of which errors.As finds the first.
type FieldError = field.Error
