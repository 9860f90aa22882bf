package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

// Parse reads a file, YAML or JSON, as strictly as kube-apiserver does: a field
// that it does not know, or of another spelling, is an error, and so is one
// that is there twice. An error is of the YAML, or wraps a [*FieldError] for
// each field.
//
// What kube-apiserver converts or leaves out is not in the result: the name
// "master", which is an older one of [ControlPlane], and the user info of a URL,
// which it never sends.
func Parse(text []byte) (*Configuration, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	var file struct {
		APIVersion    string `json:"apiVersion"`
		Kind          string `json:"kind"`
		Configuration `json:",inline"`
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("egress: %w", err)
	}
	var f fieldErrors
	f.checkValue("", tree, reflect.TypeOf(file))
	if err := f.joinErrors(); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if file.APIVersion != apiVersion && file.APIVersion != apiAlpha {
		f.addError("apiVersion", "it is %q: want %s", file.APIVersion, apiVersion)
	}
	if file.Kind != kind {
		f.addError("kind", "it is %q: want %s", file.Kind, kind)
	}
	if err := f.joinErrors(); err != nil {
		return nil, err
	}
	for i := range file.Selections {
		file.Selections[i].convert()
	}
	if err := file.Validate(); err != nil {
		return nil, err
	}
	return &file.Configuration, nil
}

// convert does what kube-apiserver does when it reads a selection, for each
// apiVersion that there is.
func (s *Selection) convert() {
	if s.Name == "master" { // in this case only
		s.Name = ControlPlane
	}
	if t := s.Connection.Transport; t != nil && t.TCP != nil {
		if u, err := url.Parse(t.TCP.URL); err == nil && u.User != nil {
			u.User = nil
			t.TCP.URL = u.String()
		}
	}
}

// checkValue compares what was read with what there is to fill. encoding/json would
// name no path, and takes "NAME" for "name".
func (f *fieldErrors) checkValue(path string, value any, want reflect.Type) {
	if value == nil && path != "" {
		return // as good as left out
	}
	switch want.Kind() {
	case reflect.Pointer:
		f.checkValue(path, value, want.Elem())
	case reflect.String:
		if _, ok := value.(string); !ok {
			f.addError(path, "want text")
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			f.addError(path, "want a list")
		}
		for i, element := range list {
			f.checkValue(fmt.Sprintf("%s[%d]", path, i), element, want.Elem())
		}
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			f.addError(orTop(path), "want an object with fields")
		}
		f.checkObject(path, object, want)
	}
}

func orTop(path string) string {
	if path == "" {
		return "(file)"
	}
	return path
}

func (f *fieldErrors) checkObject(path string, object map[string]any, want reflect.Type) {
	known := map[string]reflect.Type{}
	jsonFields(want, known)
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		if t, ok := known[name]; ok {
			f.checkValue(at, object[name], t)
		} else {
			f.addError(at, "there is no such field")
		}
	}
}

// jsonFields lists the fields of a struct by the names that they have in the file.
func jsonFields(t reflect.Type, known map[string]reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			jsonFields(field.Type, known)
		} else {
			known[name] = field.Type
		}
	}
}
