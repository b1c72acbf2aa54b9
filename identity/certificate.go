package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"unicode/utf8"
)

// CertificateName says which name of a verified client certificate is the
// principal's ID.
type CertificateName uint8

const (
	NoCertificateName CertificateName = iota // client certificates are not used
	CertificateURI                           // the one URI among the alternative names, such as a SPIFFE ID
	CertificateDNS                           // the one DNS name among the alternative names
	CertificateEmail                         // the one mail address among the alternative names
	CertificateCommon                        // the subject's common name
	CertificateKey                           // the SHA-256 of the public key (SubjectPublicKeyInfo), in hex
	certificateNames                         // how many there are
)

var certificateNameWords = [certificateNames]string{"none", "uri", "dns", "email", "common_name", "public_key"}

// String returns a word: "none", "uri", "dns", "email", "common_name" or
// "public_key".
func (n CertificateName) String() string {
	if n < certificateNames {
		return certificateNameWords[n]
	}
	return "CertificateName(" + strconv.Itoa(int(n)) + ")"
}

// CertificateProject says which name of a verified client certificate is the
// principal's Project.
type CertificateProject uint8

const (
	NoCertificateProject    CertificateProject = iota // certificates name no project
	CertificateOrganization                           // the subject's one organization
	CertificateUnit                                   // the subject's one organizational unit
	certificateProjects                               // how many there are
)

var certificateProjectWords = [certificateProjects]string{"none", "organization", "organizational_unit"}

// String returns a word: "none", "organization" or "organizational_unit".
func (p CertificateProject) String() string {
	if p < certificateProjects {
		return certificateProjectWords[p]
	}
	return "CertificateProject(" + strconv.Itoa(int(p)) + ")"
}

// maxCertificateName bounds a name that is taken from a certificate, in bytes.
const maxCertificateName = 256

// certificateReader finds the names of certificates. Making them allocates, so
// the last ones are kept: a connection shows the same certificate with every
// request, and crypto/tls keeps one x509.Certificate for equal ones.
type certificateReader struct {
	name    CertificateName
	project CertificateProject
	seed    maphash.Seed
	recent  [256]atomic.Pointer[namedCertificate]
}

type namedCertificate struct {
	cert        *x509.Certificate
	id, project string
	named       bool
}

func newCertificateReader(name CertificateName, project CertificateProject) *certificateReader {
	return &certificateReader{name: name, project: project, seed: maphash.MakeSeed()}
}

func (c *certificateReader) read(cert *x509.Certificate) *namedCertificate {
	slot := &c.recent[maphash.Comparable(c.seed, cert)%uint64(len(c.recent))]
	if n := slot.Load(); n != nil && n.cert == cert {
		return n
	}
	n := &namedCertificate{cert: cert}
	n.id, n.named = c.id(cert)
	if n.named {
		n.project, n.named = c.projectOf(cert)
	}
	slot.Store(n)
	return n
}

// id returns the name that was asked for. A certificate with none or several
// of the kind is unusable: an order among names means nothing.
func (c *certificateReader) id(cert *x509.Certificate) (string, bool) {
	switch c.name {
	case CertificateURI:
		if len(cert.URIs) != 1 {
			return "", false
		}
		return usableName(cert.URIs[0].String())
	case CertificateDNS:
		return onlyName(cert.DNSNames)
	case CertificateEmail:
		return onlyName(cert.EmailAddresses)
	case CertificateCommon:
		return usableName(cert.Subject.CommonName)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:]), true
}

// projectOf returns the project, which may be absent, but not be one of
// several.
func (c *certificateReader) projectOf(cert *x509.Certificate) (string, bool) {
	var names []string
	switch c.project {
	case CertificateOrganization:
		names = cert.Subject.Organization
	case CertificateUnit:
		names = cert.Subject.OrganizationalUnit
	}
	if len(names) == 0 {
		return "", true
	}
	return onlyName(names)
}

func onlyName(names []string) (string, bool) {
	if len(names) != 1 {
		return "", false
	}
	return usableName(names[0])
}

// usableName refuses what could not stand in a line of an explanation.
func usableName(s string) (string, bool) {
	if s == "" || len(s) > maxCertificateName || !utf8.ValidString(s) {
		return "", false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "", false
		}
	}
	return s, true
}

// useCertificate fills in p from the certificate of the connection. That of a
// trusted proxy names the proxy, not the client, and is not used.
func (r *Resolver) useCertificate(cert *x509.Certificate, p *Principal) Rejection {
	if fromProxy(p.Hop.Stop) {
		return NotRejected
	}
	// The handshake checked this too, but a connection can outlive it.
	if now := r.now(); now.After(cert.NotAfter) || now.Before(cert.NotBefore) {
		return CertificateExpired
	}
	n := r.certificates.read(cert)
	if !n.named {
		return CertificateUnnamed
	}
	p.Kind, p.ID, p.Project = Certificate, n.id, n.project
	return NotRejected
}

// fromProxy reports whether a walk that ended so began at a trusted proxy.
func fromProxy(s Stop) bool { return s != StopPeerUntrusted && s != StopNoPeer }
