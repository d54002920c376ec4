// franz-go: logs in, writes one record and reads it. The argument is the JSON of `request`. Without `Ca` the connection
// has no TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type request struct {
	Bootstrap, Ca, Mechanism, User, Password, Token, Certificate, Topic string
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func encrypted(asked request) []kgo.Opt {
	if asked.Ca == "" {
		return nil
	}
	ca, err := os.ReadFile(asked.Ca)
	fail(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: pool}
	if asked.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(asked.Certificate, asked.Certificate)
		fail(err)
		config.Certificates = []tls.Certificate{certificate}
	}
	return []kgo.Opt{kgo.DialTLSConfig(config)}
}

func secured(asked request) []kgo.Opt {
	options := append(encrypted(asked), kgo.SeedBrokers(asked.Bootstrap), kgo.RequestRetries(2))
	var mechanism sasl.Mechanism
	switch asked.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: asked.User, Pass: asked.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: asked.User, Pass: asked.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: asked.User, Pass: asked.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: asked.Token}.AsMechanism()
	default:
		return options
	}
	return append(options, kgo.SASL(mechanism))
}

func main() {
	var asked request
	fail(json.Unmarshal([]byte(os.Args[1]), &asked))
	limited, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	client, err := kgo.NewClient(append(secured(asked),
		kgo.ConsumeTopics(asked.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation())...)
	fail(err)
	defer client.Close()
	fail(client.ProduceSync(limited, &kgo.Record{Topic: asked.Topic, Value: []byte("written by franz-go")}).FirstErr())
	for {
		fetches := client.PollFetches(limited)
		fail(limited.Err())
		for _, record := range fetches.Records() {
			fmt.Println(string(record.Value))
			return
		}
	}
}
