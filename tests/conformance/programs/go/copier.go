// Copies a topic exactly once with franz-go's transaction session; see `conformance/copying.py` for the rules.
//
// Arguments after `copy`: bootstrap, input topic, output topic, transactional id, group, records in a transaction.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const givenUp = 3

func copyTopic(arguments []string) {
	if err := runCopier(arguments); err != nil {
		fmt.Fprintln(os.Stderr, "giving up:", err)
		os.Exit(givenUp)
	}
}

func runCopier(arguments []string) error {
	source, target, group := arguments[1], arguments[2], arguments[4]
	size, err := strconv.Atoi(arguments[5])
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(arguments[0]),
		kgo.TransactionalID(arguments[3]),
		kgo.ConsumerGroup(group),
		// Static, so that the one started after a kill takes its place at once.
		kgo.InstanceID("copier"),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	fmt.Println("READY")
	for {
		select {
		case <-stopping:
			session.Close()
			fmt.Println("STOPPED")
			return nil
		default:
		}
		waiting, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		records := session.PollRecords(waiting, size).Records()
		cancel()
		if len(records) > 0 {
			if err := copyRecords(session, records, target); err != nil {
				return err
			}
			continue
		}
		done, err := isDone(session.Client(), source, group)
		if err != nil {
			fmt.Fprintln(os.Stderr, "asking again:", err)
		}
		if done {
			session.Close()
			fmt.Println("DONE")
			return nil
		}
	}
}

// One transaction in eight is aborted and done again; the session rewinds by itself.
func copyRecords(session *kgo.GroupTransactSession, records []*kgo.Record, target string) error {
	ctx := context.Background()
	if err := session.Begin(); err != nil {
		return err
	}
	failed := kgo.AbortingFirstErrPromise(session.Client())
	for _, record := range records {
		copied := &kgo.Record{Topic: target, Partition: record.Partition, Key: record.Key, Value: record.Value}
		session.Produce(ctx, copied, failed.Promise())
	}
	onPurpose := rand.Intn(8) == 0
	err := failed.Err()
	committed, endErr := session.End(ctx, kgo.TransactionEndTry(err == nil && !onPurpose))
	if endErr != nil {
		return endErr
	}
	if committed {
		fmt.Println("COPIED", len(records))
	} else if !onPurpose {
		fmt.Fprintln(os.Stderr, "aborted:", err)
	}
	return nil
}

func isDone(client *kgo.Client, source string, group string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(ctx, source)
	if err != nil {
		return false, err
	}
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return false, err
	}
	done := len(ends[source]) > 0
	ends.Each(func(end kadm.ListedOffset) {
		at, found := committed.Lookup(end.Topic, end.Partition)
		done = done && end.Err == nil && found && at.At >= end.Offset
	})
	return done, nil
}
