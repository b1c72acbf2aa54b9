package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// errPlain says that TLS was not understood. A server that does not speak it waits for the rest of
// what it takes for a command, and says nothing.
var errPlain = errors.New("tls: it answers in the clear")

// tlsPatience is how long a server may take to say what it has against us.
const tlsPatience = time.Second

// refusal says why a server ended a connection, or said nothing on it, if that was about TLS; else nil.
func (o *Options) refusal() error {
	for _, address := range o.Addresses {
		if err := o.alert(address); err != nil {
			return err
		}
		if speaksPlain(address) {
			return errPlain
		}
	}
	return nil
}

// alert is what a server says about our certificate. In TLS 1.3 it comes after the handshake, and
// is lost to who has sent something meanwhile.
func (o *Options) alert(address string) error {
	conf := o.TLS.Clone()
	if host, _, err := net.SplitHostPort(address); err == nil && conf.ServerName == "" {
		conf.ServerName = host
	}
	raw, err := net.DialTimeout("tcp", address, tlsPatience)
	if err != nil {
		return nil
	}
	conn := tls.Client(raw, conf)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tlsPatience))
	_, err = conn.Read(make([]byte, 1)) // a server speaks when it is spoken to
	if err == nil || Away(err) {
		return nil
	}
	return err
}

// speaksPlain reports whether a server answers a question in the clear, which tells nobody anything.
func speaksPlain(address string) bool {
	conn, err := net.DialTimeout("tcp", address, tlsPatience)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tlsPatience))
	answer := make([]byte, 1)
	if _, err = conn.Write([]byte("PING\r\n")); err == nil {
		_, err = conn.Read(answer)
	}
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}
