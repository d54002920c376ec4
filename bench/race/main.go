// Sends or receives messages as fast as the official Go client of Redis, NATS JetStream or RabbitMQ can.
//
//	race redis|nats|rabbitmq in|out ADDRESS NAME MESSAGES BYTES
//
// Every message is acknowledged: by XADD's reply, by JetStream's acknowledgement, by a publisher confirm. Received
// messages are acknowledged too, except those of a Redis stream, which XREAD does not need. Prints JSON; the clock
// starts when the client is connected.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
)

// Messages that are sent before the first of them must be acknowledged, and that one request receives.
const window = 1000

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type race struct {
	address, name string
	messages      int
	payload       []byte
	begun         time.Time
}

func (r *race) redisIn(ctx context.Context, client *redis.Client) {
	r.begun = time.Now()
	for sent := 0; sent < r.messages; {
		pipe := client.Pipeline()
		for n := 0; n < window && sent < r.messages; n++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: r.name, Values: []interface{}{"value", r.payload}})
			sent++
		}
		_, err := pipe.Exec(ctx)
		check(err)
	}
}

func (r *race) redisOut(ctx context.Context, client *redis.Client) {
	r.begun = time.Now()
	last := "0"
	for got := 0; got < r.messages; {
		found, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{r.name, last}, Count: window}).Result()
		check(err)
		rows := found[0].Messages
		last, got = rows[len(rows)-1].ID, got+len(rows)
	}
}

func (r *race) natsIn(ctx context.Context, js jetstream.JetStream) {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: r.name, Subjects: []string{r.name}, Storage: jetstream.FileStorage,
	})
	check(err)
	r.begun = time.Now()
	futures := make([]jetstream.PubAckFuture, 0, r.messages)
	for n := 0; n < r.messages; n++ {
		future, err := js.PublishAsync(r.name, r.payload, jetstream.WithStallWait(time.Minute))
		check(err)
		futures = append(futures, future)
	}
	<-js.PublishAsyncComplete()
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			check(err)
		}
	}
}

func (r *race) natsOut(ctx context.Context, js jetstream.JetStream) {
	consumer, err := js.CreateConsumer(ctx, r.name, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckAllPolicy, MaxAckPending: -1,
	})
	check(err)
	r.begun = time.Now()
	for got := 0; got < r.messages; {
		batch, err := consumer.Fetch(min(10*window, r.messages-got))
		check(err)
		var last jetstream.Msg
		for message := range batch.Messages() {
			last = message
			got++
		}
		check(batch.Error())
		if last != nil {
			check(last.Ack())
		}
	}
}

func (r *race) rabbitIn(channel *amqp.Channel) {
	_, err := channel.QueueDeclare(r.name, true, false, false, false, nil)
	check(err)
	check(channel.Confirm(false))
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 2*window))
	r.begun = time.Now()
	sent, confirmed := 0, 0
	for confirmed < r.messages {
		for sent < r.messages && sent-confirmed < window {
			check(channel.PublishWithContext(context.Background(), "", r.name, false, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: r.payload}))
			sent++
		}
		if confirmation := <-confirms; !confirmation.Ack {
			check(fmt.Errorf("message %d was refused", confirmation.DeliveryTag))
		}
		confirmed++
	}
}

func (r *race) rabbitOut(channel *amqp.Channel) {
	check(channel.Qos(2*window, 0, false))
	r.begun = time.Now()
	messages, err := channel.Consume(r.name, "", false, false, false, false, nil)
	check(err)
	for got := 1; got <= r.messages; got++ {
		message := <-messages
		if got%window == 0 || got == r.messages {
			check(message.Ack(true))
		}
	}
}

func (r *race) run(system, way string) {
	ctx := context.Background()
	switch system {
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: r.address})
		if way == "in" {
			r.redisIn(ctx, client)
		} else {
			r.redisOut(ctx, client)
		}
	case "nats":
		connection, err := nats.Connect("nats://" + r.address)
		check(err)
		js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(4*window))
		check(err)
		if way == "in" {
			r.natsIn(ctx, js)
		} else {
			r.natsOut(ctx, js)
		}
	case "rabbitmq":
		connection, err := amqp.Dial("amqp://guest:guest@" + r.address + "/")
		check(err)
		channel, err := connection.Channel()
		check(err)
		if way == "in" {
			r.rabbitIn(channel)
		} else {
			r.rabbitOut(channel)
		}
	default:
		check(fmt.Errorf("unknown system %q", system))
	}
}

func main() {
	if len(os.Args) != 7 {
		check(fmt.Errorf("race redis|nats|rabbitmq in|out ADDRESS NAME MESSAGES BYTES"))
	}
	messages, err := strconv.Atoi(os.Args[5])
	check(err)
	size, err := strconv.Atoi(os.Args[6])
	check(err)
	r := &race{address: os.Args[3], name: os.Args[4], messages: messages, payload: bytes.Repeat([]byte("x"), size)}
	r.run(os.Args[1], os.Args[2])
	fmt.Printf("{\"messages\": %d, \"seconds\": %.6f}\n", r.messages, time.Since(r.begun).Seconds())
}
