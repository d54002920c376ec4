def create_topic(broker, topic, partitions=1, **configs):
    import confluent_kafka.admin as a
    c = a.AdminClient({"bootstrap.servers": broker.bootstrap})
    for f in c.create_topics([a.NewTopic(topic, partitions, 1, config={k.replace("_","."): v for k,v in configs.items()})]).values(): f.result()
