import com.google.protobuf.ByteString;
import io.grpc.CallCredentials;
import io.grpc.ChannelCredentials;
import io.grpc.CompositeChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import torc.v1.KvGrpc;
import torc.v1.KvGrpc.KvBlockingStub;
import torc.v1.KvOuterClass.BatchPutRequest;
import torc.v1.KvOuterClass.Condition;
import torc.v1.KvOuterClass.Fault;
import torc.v1.KvOuterClass.GetRequest;
import torc.v1.KvOuterClass.GetResponse;
import torc.v1.KvOuterClass.PutRequest;
import torc.v1.KvOuterClass.PutResult;

/**
 * Adds one to a key, some number of times, by compare-and-set: {@code Counter KEY TIMES}.
 *
 * <p>Any number of these programs may count at a time. TORC_ENDPOINTS names a node as HOST:PORT. Of a secure cluster,
 * TORC_TLS_CA names the file of its authority, and TORC_TOKEN is a bearer token.
 */
public final class Counter {
  /** A token goes with each request. gRPC sends such credentials over TLS only. */
  private static final class Token extends CallCredentials {
    private static final Metadata.Key<String> AUTHORIZATION =
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    @Override
    public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier applier) {
      Metadata metadata = new Metadata();
      metadata.put(AUTHORIZATION, "Bearer " + System.getenv("TORC_TOKEN"));
      applier.apply(metadata);
    }

    @Override
    public void thisUsesUnstableApi() {}
  }

  private static ManagedChannel connect() throws IOException {
    String endpoint = System.getenv("TORC_ENDPOINTS").split(",")[0].replaceFirst("^https?://", "");
    String authority = System.getenv("TORC_TLS_CA");
    ChannelCredentials credentials = InsecureChannelCredentials.create();
    if (authority != null) {
      ChannelCredentials tls = TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
      credentials = CompositeChannelCredentials.create(tls, new Token());
    }
    return Grpc.newChannelBuilder(endpoint, credentials).build();
  }

  /** Adds one, and returns the sum. */
  private static long addOne(KvBlockingStub kv, ByteString key) {
    while (true) {
      KvBlockingStub soon = kv.withDeadlineAfter(30, TimeUnit.SECONDS);
      GetResponse found = soon.get(GetRequest.newBuilder().setKey(key).build());
      long sum = 1;
      Condition.Builder condition = Condition.newBuilder().setIfAbsent(true);
      if (found.getFound()) {
        sum = Long.parseLong(found.getValue().toStringUtf8()) + 1;
        condition.setIfVersion(found.getVersion());
      }
      PutRequest put =
          PutRequest.newBuilder()
              .setKey(key)
              .setValue(ByteString.copyFromUtf8(Long.toString(sum)))
              .setCondition(condition)
              .build();
      // A batch of one: its result says in a message what a status says in google.rpc.ErrorInfo.
      PutResult result = soon.batchPut(BatchPutRequest.newBuilder().addItems(put).build()).getResults(0);
      if (result.hasOk()) {
        return sum;
      }
      Fault fault = result.getFault();
      if (fault.getMaybeApplied()) {
        throw new IllegalStateException("one may have been added, or may be later: " + fault.getMessage());
      }
      if (fault.getReason() != Fault.Reason.CONDITION_NOT_MET) {
        throw new IllegalStateException("nothing was added: " + fault.getMessage());
      }
      // Another program was faster: read again.
    }
  }

  public static void main(String[] args) throws IOException {
    ManagedChannel channel = connect();
    try {
      KvBlockingStub kv = KvGrpc.newBlockingStub(channel);
      for (int left = Integer.parseInt(args[1]); left > 0; left--) {
        System.out.println(addOne(kv, ByteString.copyFromUtf8(args[0])));
      }
    } finally {
      channel.shutdownNow();
    }
  }
}
