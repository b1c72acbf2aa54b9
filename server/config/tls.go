package config

// TLS makes the gateway speak TLS, 1.2 or later, and know clients by their
// certificates; see docs/certificates.md. Files are read anew when they change.
type TLS struct {
	// CertFile and KeyFile hold the gateway's certificate, with its chain, and
	// its key, in PEM. Both or none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`

	// ClientCAFile holds the certificates of those who sign the clients'
	// certificates, in PEM.
	ClientCAFile string `yaml:"client_ca_file"`

	// ClientAuth says whether clients are asked for a certificate: none
	// (default), request, or require. What is given must be valid in any case.
	ClientAuth string `yaml:"client_auth"`

	// ClientName says which name of a certificate is the client: public_key
	// (default), uri, dns, email or common_name. ClientProject says which one
	// is its project: none (default), organization or organizational_unit.
	ClientName    string `yaml:"client_name"`
	ClientProject string `yaml:"client_project"`
}

// On reports whether the gateway speaks TLS.
func (t *TLS) On() bool { return t.CertFile != "" }

// Clients reports whether certificates of clients count.
func (t *TLS) Clients() bool { return t.On() && t.ClientAuth != "none" }

func defaultTLS() TLS {
	return TLS{ClientAuth: "none", ClientName: "public_key", ClientProject: "none"}
}

func (c *checker) tls(t TLS) {
	c.oneOf("tls.client_auth", t.ClientAuth, "none", "request", "require")
	c.oneOf("tls.client_name", t.ClientName, "public_key", "uri", "dns", "email", "common_name")
	c.oneOf("tls.client_project", t.ClientProject, "none", "organization", "organizational_unit")
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		c.wrong("tls.key_file", "", "the file with the key of tls.cert_file")
	case t.CertFile == "" && (t.KeyFile != "" || t.ClientCAFile != "" || t.ClientAuth != "none"):
		c.wrong("tls.cert_file", "", "the file with the gateway's certificate")
	}
	switch {
	case t.ClientAuth != "none" && t.ClientCAFile == "":
		c.wrong("tls.client_ca_file", "",
			"the certificates of those who sign the clients'; those of the system sign for everybody")
	case t.ClientAuth == "none" && t.ClientCAFile != "":
		c.wrong("tls.client_auth", t.ClientAuth, "request or require, since there is a client_ca_file")
	}
}
