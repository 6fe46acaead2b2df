"""A state database with the schema of the Flower that is installed."""

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.server.superlink.linkstate.utils import message_to_dict
from flwr.supercore.state.schema.linkstate_models import LinkStateBase, MessageIns, MessageRes
from sqlalchemy import create_engine, insert

from fedsim.flower import enter_local_task


def write_database(path, P, *, rounds, run=2**64 - 3, numbered=True):
    """Who took part by P (rounds, clients) in some `rounds`; client k is node 2**63 + k.

    In every round one more client is asked, and fails.
    """
    enter_local_task()
    engine = create_engine(f"sqlite:///{path}")
    LinkStateBase.metadata.create_all(engine)
    with engine.begin() as connection:
        for r in rounds:
            config = ConfigRecord({"server-round": r + 1}) if numbered else ConfigRecord({})
            asked = [k for k in range(P.shape[1]) if P[r, k] or k == r % P.shape[1]]
            for k in asked:
                request = Message(RecordDict({"config": config}), 2**63 + k, "train")
                row = message_to_dict(request) | {"message_id": f"{run}-{r}-{k}", "run_id": run}
                row |= {"created_at": 100.0 * r, "dst_node_id": 2**63 + k}
                connection.execute(insert(MessageIns).values(**_signed(row)))
                failed = {"content": None, "error": b"battery"}
                reply = row | ({} if P[r, k] else failed)
                reply |= {"message_id": f"re {row['message_id']}", "reply_to_message_id": row["message_id"]}
                reply |= {"created_at": 100.0 * r + 10 + k, "src_node_id": 2**63 + k, "dst_node_id": 1}
                connection.execute(insert(MessageRes).values(**_signed(reply)))
    engine.dispose()


def _signed(row):
    return {key: v - 2**64 if isinstance(v, int) and v >= 2**63 else v for key, v in row.items()}
