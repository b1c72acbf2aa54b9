package kube

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// Manifest is what runs the webhook for API servers in a cluster.
type Manifest struct {
	Namespace     string // where it runs, which exists
	Name          string // of all its objects
	Image         string
	Replicas      int
	FailurePolicy string // Fail or Ignore
	CA            []byte // who signs the webhook's certificate, in PEM; empty if CertManager fills it in
	CertManager   bool   // has cert-manager make the certificate and renew it
}

//go:embed manifest.yaml
var manifestText string

var manifestTemplate = template.Must(template.New("manifest.yaml").Parse(manifestText))

// image is a reference to one, without what could be more than a text in YAML.
var image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)

// YAML returns the objects, but for the definition of RateLimitPolicy, or an error that names every field at fault.
func (m Manifest) YAML() ([]byte, error) {
	var errs []error
	wrong := func(ok bool, field, value, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %q, want %s", field, value, want))
		}
	}
	wrong(IsName(m.Namespace), "namespace", m.Namespace, "the name of one: small letters, digits and -, 63 at most")
	wrong(IsName(m.Name), "name", m.Name, "small letters, digits and -, 63 at most")
	wrong(image.MatchString(m.Image), "image", m.Image, "a reference such as registry.example/headgate:v0.1.0")
	wrong(m.Replicas >= 1 && m.Replicas <= 100, "replicas", fmt.Sprint(m.Replicas), "1 to 100")
	wrong(m.FailurePolicy == "Fail" || m.FailurePolicy == "Ignore", "failure-policy", m.FailurePolicy, "Fail or Ignore")
	bundle := ""
	switch block, _ := pem.Decode(m.CA); {
	case m.CertManager && len(m.CA) > 0:
		errs = append(errs, errors.New("ca-file and cert-manager are both set, want one: cert-manager fills the CA in"))
	case m.CertManager:
	case block == nil || block.Type != "CERTIFICATE":
		errs = append(errs, errors.New("ca-file holds no certificate in PEM, want those of who signs the webhook's, "+
			"or cert-manager"))
	default:
		bundle = base64.StdEncoding.EncodeToString(m.CA)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := manifestTemplate.Execute(&b, struct {
		Manifest
		CABundle string
	}{m, bundle})
	return b.Bytes(), err
}

// Objects reads objects of Kubernetes in YAML, such as CRD.
func Objects(text []byte) (all []map[string]any, err error) {
	for in := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		switch err := in.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("an object of Kubernetes: %w", err)
		}
		all = append(all, object)
	}
}
