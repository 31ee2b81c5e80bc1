"""/api/v1/nodes and /api/v1/shards: who is there, who owns what, and orders to nodes."""

from typing import Final

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.decoding import decode_optional_body
from hourhand.api.endpoints import Call, Endpoint, Handler
from hourhand.api.parameters import Parameter
from hourhand.api.views import EmptyBody
from hourhand.model.node import Orders
from hourhand.operations.cluster_requests import NodeDetail, ShardStatus
from hourhand.operations.nodes import NodeOperations

BASE: Final = "/api/v1/nodes"
_ONE: Final = BASE + "/{node_id}"
_EACH: Final = Parameter("each", "`true` lists every shard too.", {"type": "boolean", "default": False})


class NodeListView(msgspec.Struct):
    nodes: list[NodeDetail]


class NodeRoutes:
    def __init__(self, nodes: NodeOperations) -> None:
        self._nodes = nodes

    def endpoints(self) -> list[Endpoint]:
        tag = "nodes"
        return [
            Endpoint("GET", BASE, self.list_nodes, tag, "Every node, and those that ended lately", NodeListView),
            Endpoint("GET", _ONE, self.get, tag, "One node", NodeDetail),
            self._order("/cordon", self.cordon, "Take nothing new; what it has goes on"),
            self._order("/drain", self.drain, "Take nothing new and get rid of what it has"),
            self._order("/resume", self.resume, "Work again"),
            self._order("/mark-lost", self.mark_lost, "Hold a node for dead without waiting for its lease"),
            Endpoint(
                "GET", "/api/v1/shards", self.shards, tag, "Which scheduler owns which shards", ShardStatus,
                parameters=(_EACH,),
            ),
        ]  # fmt: skip

    def _order(self, verb: str, handler: Handler, summary: str) -> Endpoint:
        return Endpoint("POST", _ONE + verb, handler, "nodes", summary, NodeDetail, 200, EmptyBody, body_required=False)

    async def list_nodes(self, call: Call) -> Answer:
        return json_answer(NodeListView(list(await self._nodes.list(call.caller))))

    async def get(self, call: Call) -> Answer:
        return json_answer(await self._nodes.get(call.caller, call.number("node_id")))

    async def cordon(self, call: Call) -> Answer:
        return await self._give(call, Orders.CORDON)

    async def drain(self, call: Call) -> Answer:
        return await self._give(call, Orders.DRAIN)

    async def resume(self, call: Call) -> Answer:
        return await self._give(call, Orders.WORK)

    async def mark_lost(self, call: Call) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        return json_answer(await self._nodes.mark_lost(call.caller, call.number("node_id")))

    async def shards(self, call: Call) -> Answer:
        each = call.query.choice("each", {"true": True, "false": False}) or False
        return json_answer(await self._nodes.shards(call.caller, each))

    async def _give(self, call: Call, orders: Orders) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        return json_answer(await self._nodes.order(call.caller, call.number("node_id"), orders))
